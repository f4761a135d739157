#include "train/setup/preparation.hpp"

#include <ATen/ATen.h>

#include <memory>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "kernels/augment.hpp"
#include "kernels/device_kernels.hpp"
#include "kernels/image_batch.hpp"
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
    default:
      throw Error("batches have no elements of this type", {.subject = std::string(element_name(type))});
  }
}

// Keeps the array. LibTorch has no tensors over constant memory; nothing writes to this one.
at::Tensor tensor_over(const std::shared_ptr<const data::HostArray>& array) {
  return at::from_blob(
      const_cast<void*>(array->data()), array->shape(), [array](void*) {},
      at::TensorOptions().dtype(scalar_type(array->type())));
}

/// `images` [n, channels, height, width] of bytes or floats.
template <typename T>
void normalize(at::Tensor& out, const at::Tensor& images, const std::vector<float>& mean,
               const std::vector<float>& deviation) {
  const auto channels = static_cast<std::size_t>(images.size(1));
  const auto samples = static_cast<std::size_t>(images.size(0));
  const std::size_t plane =
      samples == 0 ? 0 : static_cast<std::size_t>(images.numel()) / (samples * channels);
  const bool plain = mean.size() != channels || deviation.size() != channels;
  if (images.scalar_type() == at::kFloat) {
    if (plain) {
      out.copy_(images);
    } else {
      kernels::normalize_f32(out.data_ptr<T>(), images.const_data_ptr<float>(), samples, channels, plane,
                             mean.data(), deviation.data());
    }
    return;
  }
  kernels::normalize_u8(out.data_ptr<T>(), images.const_data_ptr<std::uint8_t>(), samples, channels, plane,
                        plain ? nullptr : mean.data(), plain ? nullptr : deviation.data());
}

template <typename T>
at::Tensor augmented(const at::Tensor& images, const data::Batch& batch, const Augmentation& how) {
  auto out = at::empty_like(images);
  const auto extent = [&](int dim) { return static_cast<std::size_t>(images.size(dim)); };
  kernels::crop_and_flip(out.data_ptr<T>(), images.const_data_ptr<T>(), {extent(1), extent(2), extent(3)},
                         std::span<const std::int64_t>(batch.samples), how.seed,
                         static_cast<std::uint32_t>(batch.step / how.steps_per_epoch + 1), how.padding,
                         how.flips);
  return out;
}

/// [..., targets]
template <typename T>
void in_units(std::span<T> values, std::span<const checkpoint::TargetScale> targets) {
  for (std::size_t i = 0; i < values.size() && !targets.empty(); ++i) {
    const auto& target = targets[i % targets.size()];
    values[i] = static_cast<T>(double{values[i]} * target.scale + target.shift);
  }
}

}  // namespace

Preparation::Preparation(const data::DatasetInfo& info, const state::InputTransformation& how,
                         at::ScalarType dtype, models::Goal goal,
                         const std::optional<Augmentation>& augmentation, at::Device device,
                         parallel::DeviceClock* clock)
    : dtype_(dtype),
      device_(device),
      copies_(device, clock),
      standardises_floats_(goal != models::Goal::own_input && !how.mean.empty() &&
                           how.floats == state::InputTransformation::Floats::standardised),
      pairs_(info.task == "translation"),
      takes_targets_(goal == models::Goal::own_loss && info.task != "translation"),
      augmentation_(augmentation),
      gaps_(how.gaps),
      target_scales_(how.targets) {
  std::vector<double> shifts;
  std::vector<double> scales;
  for (const auto& target : target_scales_) {
    shifts.push_back(target.shift);
    scales.push_back(target.scale);
  }
  target_shift_ = at::tensor(shifts, at::kDouble);
  target_scale_ = at::tensor(scales, at::kDouble);
  if (!how.factor.empty()) {
    factor_ = at::tensor(how.factor, at::TensorOptions().dtype(dtype));
    offset_ = at::tensor(how.offset, at::TensorOptions().dtype(dtype));
  }
  if (goal == models::Goal::own_input) return;
  mean_.assign(how.mean.begin(), how.mean.end());
  deviation_.assign(how.std_dev.begin(), how.std_dev.end());
  for (auto& value : deviation_) {
    if (value == 0.0F) value = 1.0F;  // a constant channel carries nothing; keep it finite
  }
}

models::Tensors Preparation::prepared(const at::Tensor& stored) const {
  const bool floats = stored.scalar_type() == at::kFloat;
  if (stored.scalar_type() == at::kByte || (floats && standardises_floats_)) return prepared_images(stored);
  if (!floats) return {stored};
  const at::Tensor rows = prepared_rows(stored);
  return {device_.is_cpu() ? rows.to(dtype_) : copies_.copied(rows, dtype_)};
}

/// [n, inputs]
at::Tensor Preparation::prepared_rows(const at::Tensor& stored) const {
  if (!factor_.defined()) return stored;
  const at::Tensor rows = stored.to(dtype_) * factor_ + offset_;
  for (const auto& gap : gaps_) {
    const at::Tensor marks = stored.select(1, static_cast<std::int64_t>(gap.marker)) > 0.5;
    rows.select(1, static_cast<std::int64_t>(gap.input)).masked_fill_(marks, gap.value);
  }
  return rows;
}

models::Tensors Preparation::prepared_images(const at::Tensor& stored) const {
  auto out = copies_.staging(stored.sizes(), dtype_);
  if (dtype_ == at::kDouble) {
    normalize<double>(out, stored, mean_, deviation_);
  } else {
    normalize<float>(out, stored, mean_, deviation_);
  }
  return {copies_.ahead([&] { return out.to(device_, /*non_blocking=*/true); })};
}

bool Preparation::has_kernel_for(const at::Tensor& stored) const {
  return !device_.is_cpu() && kernels::device_kernels() != nullptr && dtype_ == at::kFloat &&
         stored.scalar_type() == at::kByte && stored.dim() == 4 &&
         stored.size(1) <= static_cast<std::int64_t>(kernels::DeviceKernels::kMostChannels) &&
         (!augmentation_ || augmentation_->padding <= kernels::DeviceKernels::kMostPadding);
}

Preparation::Crops Preparation::crops_of(const data::Batch& batch) const {
  Crops crops;
  if (!augmentation_) return crops;
  const auto epoch = static_cast<std::uint32_t>(batch.step / augmentation_->steps_per_epoch + 1);
  for (const auto sample : batch.samples) {
    crops.push_back(kernels::crop_and_flip_of(augmentation_->seed, epoch, sample, augmentation_->padding,
                                              augmentation_->flips));
  }
  return crops;
}

/// [n, channels, height, width], with channels last in memory.
at::Tensor Preparation::prepared_on_device(const at::Tensor& stored, Crops crops) const {
  const auto extent = [&](int dim) { return static_cast<std::size_t>(stored.size(dim)); };
  kernels::ImageBatch batch{.shape = {extent(1), extent(2), extent(3)}, .how = std::move(crops)};
  batch.padding = batch.how.empty() ? 0 : augmentation_->padding;
  const bool plain = mean_.size() != extent(1) || deviation_.size() != extent(1);
  kernels::set_normalisation(batch, plain ? std::span<const float>() : mean_,
                             plain ? std::span<const float>() : deviation_);
  const auto from = copies_.staging(stored.sizes(), at::kByte);
  from.copy_(stored);
  return copies_.ahead([&] {
    const auto bytes = from.to(device_, /*non_blocking=*/true);
    auto out = at::empty(stored.sizes(), at::TensorOptions().dtype(at::kFloat).device(device_),
                         at::MemoryFormat::ChannelsLast);
    kernels::device_kernels()->prepare_images(out.data_ptr(), kernels::Element::float32,
                                              bytes.const_data_ptr<std::uint8_t>(), extent(0), batch,
                                              copies_.stream());
    return out;
  });
}

models::Tensors Preparation::inputs(const data::Batch& batch) const {
  if (pairs_) return {tensor_over(batch.inputs), tensor_over(batch.targets)};
  const auto stored = tensor_over(batch.inputs);
  return with_targets(
      has_kernel_for(stored) ? models::Tensors{prepared_on_device(stored, {})} : prepared(stored), batch);
}

models::Tensors Preparation::with_targets(models::Tensors inputs, const data::Batch& batch) const {
  if (takes_targets_) inputs.push_back(targets(batch));
  return inputs;
}

models::Tensors Preparation::training_inputs(const data::Batch& batch) const {
  if (!augmentation_) return inputs(batch);
  const auto stored = tensor_over(batch.inputs);
  if (has_kernel_for(stored)) return with_targets({prepared_on_device(stored, crops_of(batch))}, batch);
  return with_targets(
      prepared(stored.scalar_type() == at::kByte ? augmented<std::uint8_t>(stored, batch, *augmentation_)
                                                 : augmented<float>(stored, batch, *augmentation_)),
      batch);
}

at::Tensor Preparation::targets(const data::Batch& batch) const {
  const auto targets = tensor_over(batch.targets);
  if (!targets.is_floating_point()) return targets.to(at::kLong);
  if (target_scales_.empty()) return targets.to(dtype_);
  // In double: a shift may be far larger than what is left.
  return ((targets.to(at::kDouble) - target_shift_) / target_scale_).to(dtype_);
}

double Preparation::target_scale(std::size_t target) const {
  return target_scales_.empty() ? 1.0 : target_scales_.at(target).scale;
}

void Preparation::give_units(std::span<float> values) const { in_units(values, target_scales_); }

void Preparation::give_units(std::span<double> values) const { in_units(values, target_scales_); }

at::Tensor targets_of(const models::Model& model, const Preparation& preparation, const data::Batch& batch,
                      const models::Tensors& inputs) {
  return model.goal() == models::Goal::own_input ? inputs.at(0) : preparation.targets(batch);
}

}  // namespace dtrain::train
