#include "train/saved_state.hpp"

#include <ATen/ATen.h>

#include <span>
#include <utility>

#include "checkpoint/writer.hpp"
#include "core/error.hpp"

namespace dtrain::train {
namespace {

at::ScalarType scalar_type_of(const std::string& dtype) {
  if (dtype == "float32") return at::kFloat;
  if (dtype == "float64") return at::kDouble;
  if (dtype == "int32") return at::kInt;
  if (dtype == "int64") return at::kLong;
  throw checkpoint_error("a tensor has a type this version does not read", dtype, "use a newer dtrain");
}

void read_into(const checkpoint::CheckpointReader& reader, const std::string& name, at::Tensor& value) {
  const auto* entry = reader.manifest().find("model/" + name);
  if (entry == nullptr) {
    throw checkpoint_error("the checkpoint lacks tensor " + name, reader.folder().string(),
                           "take a checkpoint of this model");
  }
  if (value.sizes() != at::IntArrayRef(entry->shape)) {
    throw checkpoint_error("tensor " + name + " has another shape than the model's", reader.folder().string(),
                           "give the --model-option values the checkpoint was made with");
  }
  auto stored = at::empty(entry->shape, at::TensorOptions().dtype(scalar_type_of(entry->dtype)));
  reader.read("model/" + name, entry->dtype, {static_cast<std::byte*>(stored.data_ptr()), stored.nbytes()});
  value.copy_(stored);
}

}  // namespace

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

void load_model(const checkpoint::CheckpointReader& reader, models::Model& model) {
  const at::NoGradGuard no_grad;
  for (auto* parameter : model.parameters()) read_into(reader, parameter->name, parameter->value);
  for (auto* buffer : model.buffers()) read_into(reader, buffer->name, buffer->value);
}

}  // namespace dtrain::train
