#include "train/saved_state.hpp"

#include <ATen/ATen.h>

#include <span>
#include <utility>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

/// What a writer has to tell the others: its part of the manifest, or why there is none.
struct Written {
  std::string text;
  bool failed = false;
};

template <typename Write>
Written attempt(const Write& write) {
  try {
    return {write(), false};
  } catch (const Error& error) {
    return {error.what(), true};
  }
}

/// The texts of all ranks that have one. Throws Error on all ranks when one failed. Collective.
std::vector<std::string> agreed(const comm::Communicator& world, const Written& own) {
  const auto texts = world.all_gather(own.text);
  const auto failed = world.all_gather(static_cast<std::int64_t>(own.failed));
  std::vector<std::string> parts;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (failed[rank] != 0) throw Error(texts[rank], {.code = ExitCode::checkpoint});
    if (!texts[rank].empty()) parts.push_back(texts[rank]);
  }
  return parts;
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

std::vector<checkpoint::TensorRef> SavedState::references() const {
  std::vector<checkpoint::TensorRef> references;
  references.reserve(tensors_.size());
  for (const auto& tensor : tensors_) {
    references.push_back({.slice = Slice::whole(tensor.name, tensor.value.sizes().vec()),
                          .group = tensor.group,
                          .dtype = dtype_name(tensor.value.scalar_type()),
                          .data = tensor.value.const_data_ptr()});
  }
  return references;
}

void SavedState::write(const std::filesystem::path& checkpoints, Job& job, h5::Library& library) const {
  const checkpoint::Saving saving(checkpoints, info_.step);
  const auto where = job.mesh().coordinates(job.rank());
  const bool first = job.rank() == 0;
  if (first) saving.begin();
  job.world().barrier();
  // A writer that fails says so in place of its part, so that all ranks throw alike.
  Written written;
  if (where.data == 0)
    written = attempt([&] { return saving.write_part(where.pipe, references(), library); });
  const auto parts = agreed(job.world(), written);
  if (first) written = attempt([&] { return saving.commit(info_, parts).string(); });
  if (first && written.failed) saving.abandon();
  agreed(job.world(), first ? written : Written{});
}

void SavedState::restore_model(models::Model& model) const {
  const at::NoGradGuard no_grad;
  std::size_t i = 0;
  for (auto* buffer : model.buffers()) buffer->value.copy_(tensors_[i++].value);
  if (i == tensors_.size()) return;
  for (auto* parameter : model.parameters()) parameter->value.copy_(tensors_[i++].value);
}

}  // namespace dtrain::train
