#include "state/saved_state.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "models/slicing/slices.hpp"
#include "parallel/data_types.hpp"
#include "state/dtypes.hpp"
#include "state/gather.hpp"

namespace dtrain::state {
namespace {

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

/// Between the ranks of a tensor group.
class GroupMessages : public PartMessages {
 public:
  GroupMessages(comm::Group& group, int owner) : group_(group), owner_(owner) {}
  void send(const at::Tensor& part) override { group_.send(parallel::buffer_of(part), owner_).wait(); }
  void receive(at::Tensor& part, int index) override {
    group_.receive(parallel::buffer_of(part), index).wait();
  }

 private:
  comm::Group& group_;
  int owner_;
};

}  // namespace

checkpoint::TensorRef reference_to(const std::string& group, const std::string& name, const at::Tensor& value,
                                   const std::optional<Slice>& rectangle) {
  return {.slice = rectangle ? *rectangle : Slice::whole(name, value.sizes().vec()),
          .group = group,
          .dtype = dtype_name(value.scalar_type()),
          .data = value.const_data_ptr()};
}

std::optional<Slice> rectangle_of_stage(const parallel::StateTensor& tensor) {
  if (tensor.slice == nullptr || models::group_slice(tensor.slice) != nullptr) return std::nullopt;
  return models::rectangle_of(tensor.name, *tensor.slice);
}

std::string group_of_copy(const std::string& group, int index) {
  return fmt::format("{}.copy-{:05}", group, index);
}

/// What the ranks of a stage share out to be saved, in one order on all of them: of other copies' values only
/// the names count.
std::vector<parallel::StateTensor> SavedState::listed(const std::vector<parallel::StateTensor>& state) const {
  std::vector<parallel::StateTensor> all;
  for (const auto& tensor : state) {
    if (tensor.shard) continue;
    const auto& owner = tensor.owner;
    if (owner.pipe && *owner.pipe != where_.pipe) continue;
    for (int index = 0; owner.copy && index < owner.copy->count; ++index) {
      all.push_back(tensor);
      all.back().group = group_of_copy(tensor.group, index);
      all.back().owner.copy->index = index;
    }
    if (!owner.copy) all.push_back(tensor);
  }
  return all;
}

/// For each tensor the rank that saves it: of those of the stage, counted as data * tensor ranks + tensor,
/// one of its owner's. What a tensor group has in common its first rank saves, which the others follow.
std::vector<int> SavedState::savers(const std::vector<parallel::StateTensor>& state) const {
  std::vector<std::int64_t> bytes;
  for (const auto& source : state) {
    const auto shape = models::whole_shape(source.value, source.slice);
    bytes.push_back(std::accumulate(shape.begin(), shape.end(),
                                    static_cast<std::int64_t>(source.value.element_size()),
                                    std::multiplies<>()));
  }
  auto savers = share_out(bytes, std::int64_t{mesh_.data} * mesh_.tensor, kSmallestShare);
  for (std::size_t i = 0; i < state.size(); ++i) {
    const auto& copy = state[i].owner.copy;
    if (copy) savers[i] = copy->index * mesh_.tensor + savers[i] % mesh_.tensor;
    if (models::group_slice(state[i].slice) == nullptr) savers[i] -= savers[i] % mesh_.tensor;
  }
  return savers;
}

/// Slices go to the rank of their own copy of the model that is to have the whole.
void SavedState::put_together(const parallel::StateTensor& source, int saver, Copy& copy) const {
  const int count = mesh_.tensor;
  if (where_.data != saver / count) return;
  const bool mine = where_.tensor == saver % count;
  const models::HeldSlice* slice = models::group_slice(source.slice);
  if (slice == nullptr) {
    if (mine) copy_into(copy.value, source.read());
    return;
  }
  if (mine && !copy.value.defined()) copy.value = at::empty(slice->whole, on_cpu(source.value));
  std::vector<at::Tensor> parts(static_cast<std::size_t>(count));
  parts[static_cast<std::size_t>(where_.tensor)] = source.read();
  GroupMessages messages(tensor_, saver % count);
  gather_parts(*slice, parts, mine ? &copy.value : nullptr, messages);
}

void SavedState::take(const std::vector<parallel::StateTensor>& state, checkpoint::CheckpointInfo info) {
  const at::NoGradGuard no_grad;
  info_ = std::move(info);
  const auto sources = listed(state);
  const auto saver = savers(sources);
  const auto shards =
      std::ranges::count_if(state, [](const auto& tensor) { return tensor.shard && tensor.saves_shard; });
  copies_.resize(sources.size() + static_cast<std::size_t>(shards));
  auto copy = copies_.begin();
  for (std::size_t i = 0; i < sources.size(); ++i, ++copy) {
    copy->group = sources[i].group;
    copy->name = sources[i].name;
    copy->rectangle = rectangle_of_stage(sources[i]);
    put_together(sources[i], saver[i], *copy);
  }
  for (const auto& tensor : state) {
    if (!tensor.shard || !tensor.saves_shard) continue;
    const auto& owner = tensor.owner.copy;
    copy->group = owner ? group_of_copy(tensor.group, owner->index) : tensor.group;
    copy->name = tensor.name;
    copy->rectangle = tensor.shard;
    copy_into((copy++)->value, tensor.read());
  }
}

int SavedState::writer() const {
  const bool has_share = std::ranges::any_of(copies_, [](const Copy& copy) { return copy.value.defined(); });
  if (!has_share) return -1;
  return (where_.pipe * mesh_.data + where_.data) * mesh_.tensor + where_.tensor;
}

std::vector<checkpoint::TensorRef> SavedState::references() const {
  std::vector<checkpoint::TensorRef> references;
  for (const auto& copy : copies_) {
    if (!copy.value.defined()) continue;
    references.push_back(reference_to(copy.group, copy.name, copy.value, copy.rectangle));
  }
  return references;
}

}  // namespace dtrain::state
