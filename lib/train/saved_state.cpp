#include "train/saved_state.hpp"

#include <ATen/ATen.h>

#include <span>
#include <utility>

#include "checkpoint/writer.hpp"
#include "core/error.hpp"

namespace dtrain::train {
std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    default:
      throw Error("tensors of this type are not saved", {.subject = c10::toString(type)});
  }
}

SavedState::SavedState(const parallel::FlatParameters& parameters, models::Model& model,
                       const optim::Optimizer& optimizer, checkpoint::CheckpointInfo info, Contents contents)
    : info_(std::move(info)) {
  const at::NoGradGuard no_grad;
  // Cloned as a dense row-major tensor, whatever strides the model prefers.
  const auto copy = [](const at::Tensor& tensor) {
    return tensor.detach().clone(at::MemoryFormat::Contiguous);
  };
  for (const auto* buffer : model.buffers()) tensors_.push_back({"model", buffer->name, copy(buffer->value)});
  if (contents == Contents::buffers) return;
  for (const auto* parameter : model.parameters()) {
    tensors_.push_back({"model", parameter->name, copy(parameter->value)});
  }
  for (const auto& state : optimizer.state()) {
    for (const auto& entry : parameters.entries()) {
      tensors_.push_back({"optimizer/" + state.name, entry.parameter->name,
                          copy(parallel::FlatParameters::view(state.value, entry))});
    }
  }
}

std::filesystem::path SavedState::write(const std::filesystem::path& checkpoints,
                                        h5::Library& library) const {
  std::vector<checkpoint::TensorRef> references;
  references.reserve(tensors_.size());
  for (const auto& tensor : tensors_) {
    references.push_back({.slice = Slice::whole(tensor.name, tensor.value.sizes().vec()),
                          .group = tensor.group,
                          .dtype = dtype_name(tensor.value.scalar_type()),
                          .data = tensor.value.const_data_ptr()});
  }
  return checkpoint::save(checkpoints, info_, references, library);
}

void SavedState::restore_model(models::Model& model) const {
  const at::NoGradGuard no_grad;
  std::size_t i = 0;
  for (auto* buffer : model.buffers()) buffer->value.copy_(tensors_[i++].value);
  if (i == tensors_.size()) return;
  for (auto* parameter : model.parameters()) parameter->value.copy_(tensors_[i++].value);
}

}  // namespace dtrain::train
