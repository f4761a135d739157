#include "train/preparation.hpp"

#include <ATen/ATen.h>

#include "kernels/normalize.hpp"

namespace dtrain::train {
namespace {

at::ScalarType scalar_type(data::ElementType type) {
  switch (type) {
    case data::ElementType::uint8:
      return at::kByte;
    case data::ElementType::int32:
      return at::kInt;
    case data::ElementType::int64:
      return at::kLong;
    case data::ElementType::float32:
      return at::kFloat;
  }
  return at::kByte;
}

// LibTorch has no tensors over constant memory; nothing writes to this one.
at::Tensor borrowed(const data::HostArray& array) {
  return at::from_blob(const_cast<void*>(array.data()), array.shape(),
                       at::TensorOptions().dtype(scalar_type(array.type())));
}

template <typename T>
void normalize(at::Tensor& out, const data::HostArray& images, const std::vector<float>& mean,
               const std::vector<float>& deviation) {
  const auto& shape = images.shape();
  const auto channels = static_cast<std::size_t>(shape.at(1));
  const auto samples = static_cast<std::size_t>(shape.at(0));
  const std::size_t plane = samples == 0 ? 0 : images.bytes() / (samples * channels);
  const bool plain = mean.size() != channels || deviation.size() != channels;
  kernels::normalize_u8(out.data_ptr<T>(), static_cast<const std::uint8_t*>(images.data()), samples, channels,
                        plane, plain ? nullptr : mean.data(), plain ? nullptr : deviation.data());
}

}  // namespace

Preparation::Preparation(const data::DatasetInfo& info, at::ScalarType dtype)
    : dtype_(dtype),
      mean_(info.mean.begin(), info.mean.end()),
      deviation_(info.std_dev.begin(), info.std_dev.end()) {
  for (auto& value : deviation_) {
    if (value == 0.0F) value = 1.0F;  // a constant channel carries nothing; keep it finite
  }
}

models::Tensors Preparation::inputs(const data::Batch& batch) const {
  const auto& array = batch.inputs;
  if (array.type() == data::ElementType::float32) return {borrowed(array).to(dtype_)};
  if (array.type() != data::ElementType::uint8) return {borrowed(array)};
  auto out = at::empty(array.shape(), at::TensorOptions().dtype(dtype_));
  if (dtype_ == at::kDouble) {
    normalize<double>(out, array, mean_, deviation_);
  } else {
    normalize<float>(out, array, mean_, deviation_);
  }
  return {out};
}

at::Tensor Preparation::targets(const data::Batch& batch) const {
  auto targets = borrowed(batch.targets);
  return targets.is_floating_point() ? targets.to(dtype_) : targets.to(at::kLong);
}

}  // namespace dtrain::train
