#include "train/recovery/saved_state.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "models/slicing/slices.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::train {
namespace {

constexpr std::int64_t kSmallestShare = std::int64_t{4} << 20;  // bytes: below, another file costs more

at::TensorOptions on_cpu(const at::Tensor& value) {
  return value.options().requires_grad(false).device(at::kCPU);
}

/// `place` becomes a dense row-major copy on the CPU, in its own memory where it has some of that shape and
/// type.
void copy_into(at::Tensor& place, const at::Tensor& value) {
  if (!place.defined() || place.sizes() != value.sizes() || place.scalar_type() != value.scalar_type()) {
    place = at::empty(value.sizes(), on_cpu(value));
  }
  place.copy_(value);
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

std::vector<StateTensor> state_tensors(const parallel::StateView& state) {
  std::vector<StateTensor> sources;
  for (const auto* buffer : state.model.buffers()) {
    sources.push_back({"model", buffer->name, buffer->value, buffer->slice});
  }
  for (const auto* parameter : state.model.parameters()) {
    sources.push_back({"model", parameter->name, parameter->value.detach(), parameter->slice});
  }
  for (const auto& moments : state.optimizer.state()) {
    for (const auto& entry : state.parameters.entries()) {
      sources.push_back({"optimizer/" + moments.name, entry.parameter->name,
                         parallel::FlatParameters::view(moments.value, entry), entry.parameter->slice});
    }
  }
  return sources;
}

checkpoint::TensorRef reference_to(const std::string& group, const std::string& name,
                                   const at::Tensor& value) {
  return {.slice = Slice::whole(name, value.sizes().vec()),
          .group = group,
          .dtype = dtype_name(value.scalar_type()),
          .data = value.const_data_ptr()};
}

/// For each tensor the rank among those of the stage, counted as data * tensor ranks + tensor: each next one
/// goes to who has least so far.
std::vector<int> SavedState::owners(const std::vector<StateTensor>& sources) const {
  std::vector<std::int64_t> bytes;
  for (const auto& source : sources) {
    const auto shape = models::whole_shape(source.value, source.slice);
    bytes.push_back(std::accumulate(shape.begin(), shape.end(),
                                    static_cast<std::int64_t>(source.value.element_size()),
                                    std::multiplies<>()));
  }
  const auto& mesh = job_.mesh().shape();
  const auto all = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  const auto shares =
      std::clamp<std::int64_t>(all / kSmallestShare, 1, std::int64_t{mesh.data} * mesh.tensor);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(shares), 0);
  std::vector<int> owners;
  for (const auto count : bytes) {
    const auto least = std::ranges::min_element(loads);
    *least += count;
    owners.push_back(static_cast<int>(least - loads.begin()));
  }
  return owners;
}

/// Slices go to the rank of their own copy of the model that is to have the whole.
void SavedState::put_together(const StateTensor& source, int owner, Copy& copy) const {
  const auto where = job_.mesh().coordinates(job_.rank());
  const int ranks = job_.mesh().shape().tensor;
  if (where.data != owner / ranks) return;
  comm::Group& group = job_.groups().tensor();
  const bool mine = where.tensor == owner % ranks;
  if (source.slice == nullptr) {
    if (mine) copy_into(copy.value, source.value);
    return;
  }
  const models::HeldSlice& slice = *source.slice;
  if (!mine) {
    group.send(parallel::buffer_of(source.value.cpu().contiguous()), owner % ranks).wait();
    return;
  }
  if (!copy.value.defined()) copy.value = at::empty(slice.whole, on_cpu(source.value));
  for (int rank = 0; rank < ranks; ++rank) {
    const Range part = part_of(models::sliced_extent(slice), rank, ranks);
    at::Tensor held = source.value;
    if (rank != where.tensor) {
      held = at::empty(models::held_shape(slice, part), copy.value.options());
      group.receive(parallel::buffer_of(held), rank).wait();
    }
    models::put_part(copy.value, slice, part, held);
  }
}

void SavedState::take(const parallel::StateView& state, checkpoint::CheckpointInfo info) {
  const at::NoGradGuard no_grad;
  info_ = std::move(info);
  const auto sources = state_tensors(state);
  const auto owner = owners(sources);
  copies_.resize(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    copies_[i].group = sources[i].group;
    copies_[i].name = sources[i].name;
    put_together(sources[i], owner[i], copies_[i]);
  }
}

int SavedState::writer() const {
  const bool has_share = std::ranges::any_of(copies_, [](const Copy& copy) { return copy.value.defined(); });
  if (!has_share) return -1;
  const auto& mesh = job_.mesh().shape();
  const auto where = job_.mesh().coordinates(job_.rank());
  return (where.pipe * mesh.data + where.data) * mesh.tensor + where.tensor;
}

std::vector<checkpoint::TensorRef> SavedState::references() const {
  std::vector<checkpoint::TensorRef> references;
  for (const auto& copy : copies_) {
    if (copy.value.defined()) references.push_back(reference_to(copy.group, copy.name, copy.value));
  }
  return references;
}

}  // namespace dtrain::train
