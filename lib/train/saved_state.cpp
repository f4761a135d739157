#include "train/saved_state.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <span>
#include <utility>

#include "core/error.hpp"
#include "models/slices.hpp"
#include "parallel/data_types.hpp"

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
  for (const auto* buffer : model.buffers()) {
    tensors_.push_back({"model", buffer->name, copy(buffer->value), buffer->slice});
  }
  if (contents == Contents::buffers) return;
  for (const auto* parameter : model.parameters()) {
    tensors_.push_back({"model", parameter->name, copy(parameter->value), parameter->slice});
  }
  for (const auto& state : optimizer.state()) {
    for (const auto& entry : parameters.entries()) {
      tensors_.push_back({"optimizer/" + state.name, entry.parameter->name,
                          copy(parallel::FlatParameters::view(state.value, entry)), entry.parameter->slice});
    }
  }
}

/// Whole tensors on rank 0 of the group. Collective over the group.
std::vector<SavedState::Named> SavedState::put_together(comm::Group& tensor_ranks) const {
  const auto memory_of = [](const at::Tensor& values) {
    return comm::Buffer{values.data_ptr(), static_cast<std::size_t>(values.numel()),
                        parallel::data_type_of(values.scalar_type())};
  };
  std::vector<Named> all = tensors_;
  for (auto& tensor : all) {
    if (tensor.slice == nullptr) continue;
    const models::HeldSlice& slice = *tensor.slice;
    if (tensor_ranks.rank() != 0) {
      tensor_ranks.send(memory_of(tensor.value), 0).wait();
      continue;
    }
    at::Tensor whole = at::empty(slice.whole, tensor.value.options());
    models::put_part(whole, slice, slice.part, tensor.value);
    for (int rank = 1; rank < tensor_ranks.size(); ++rank) {
      const Range part = part_of(models::sliced_extent(slice), rank, tensor_ranks.size());
      const at::Tensor theirs = at::empty(models::held_shape(slice, part), whole.options());
      tensor_ranks.receive(memory_of(theirs), rank).wait();
      models::put_part(whole, slice, part, theirs);
    }
    tensor.value = whole;
  }
  return all;
}

std::vector<checkpoint::TensorRef> SavedState::references(const std::vector<Named>& tensors) {
  std::vector<checkpoint::TensorRef> references;
  references.reserve(tensors.size());
  for (const auto& tensor : tensors) {
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
  if (where.data == 0) {
    const auto tensors = put_together(job.groups().tensor());
    if (where.tensor == 0) {
      written = attempt([&] { return saving.write_part(where.pipe, references(tensors), library); });
    }
  }
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
