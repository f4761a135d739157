#include "parallel/data_types.hpp"

#include <memory>

#include "core/error.hpp"

namespace dtrain::parallel {

comm::DataType data_type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return comm::DataType::float32;
    case at::kDouble:
      return comm::DataType::float64;
    case at::kBFloat16:
      return comm::DataType::bfloat16;
    case at::kHalf:
      return comm::DataType::float16;
    case at::kInt:
      return comm::DataType::int32;
    case at::kLong:
      return comm::DataType::int64;
    default:
      break;
  }
  throw Error("tensors of this type are not exchanged",
              {.subject = c10::toString(type), .advice = "convert it first"});
}

Carrier carrier_of(comm::Group& group, at::Device device) {
  auto* const direct = device.is_cpu() ? nullptr : group.on_device();
  if (direct != nullptr) return {*direct, device};
  return {group, at::kCPU};
}

comm::Buffer buffer_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), data_type_of(tensor.scalar_type()),
          std::make_shared<at::Tensor>(tensor)};
}

}  // namespace dtrain::parallel
