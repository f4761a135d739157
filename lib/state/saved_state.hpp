#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/writer.hpp"
#include "comm/group.hpp"
#include "parallel/strategy/state_view.hpp"
#include "topology/mesh.hpp"

namespace dtrain::state {

/// Bytes of a state that a rank saves at least, where several share it out: below, another file costs more.
inline constexpr std::int64_t kSmallestShare = std::int64_t{4} << 20;

/// To be written: `value`, contiguous, is `rectangle` of the tensor; empty: the whole. Borrowed.
checkpoint::TensorRef reference_to(const std::string& group, const std::string& name, const at::Tensor& value,
                                   const std::optional<Slice>& rectangle);

/// What of the tensor the ranks of a stage hold together, where it is not the whole one.
std::optional<Slice> rectangle_of_stage(const parallel::StateTensor& tensor);

/// Where a checkpoint has what copy `index` of the model holds of `group`: `optimizer/exp_avg.copy-00001`.
std::string group_of_copy(const std::string& group, int index);

/// A copy of this rank's share of a state, taken between two steps: the run may go on while it is kept or
/// written. The ranks that hold the same stage of the model, its copies and its slices, share out its
/// tensors: the rank that has one has the whole of it. A value of one copy of the model is saved by that
/// copy, under group_of_copy(), and a shard by the rank that holds it.
class SavedState {
 public:
  /// `where`: this rank's place in the mesh; `tensor`: its tensor group, borrowed.
  SavedState(const topology::MeshShape& mesh, const topology::MeshCoordinates& where, comm::Group& tensor)
      : mesh_(mesh), where_(where), tensor_(tensor) {}

  /// Copies `state`, this rank's part; memory of an earlier copy is used again. Collective over the ranks of
  /// each stage, which have the same tensors in one order.
  void take(const std::vector<parallel::StateTensor>& state, checkpoint::CheckpointInfo info);

  bool taken() const { return info_.step > 0; }
  const checkpoint::CheckpointInfo& info() const { return info_; }

  /// This rank's number among the writers of a checkpoint, or -1 where it has no share.
  int writer() const;
  /// What it writes: valid until the next take().
  std::vector<checkpoint::TensorRef> references() const;

 private:
  struct Copy {
    std::string group;
    std::string name;
    at::Tensor value;                     // contiguous; undefined where another rank has it
    std::optional<Slice> rectangle = {};  // what of the tensor it is; empty: the whole
  };
  std::vector<parallel::StateTensor> listed(const std::vector<parallel::StateTensor>& state) const;
  std::vector<int> savers(const std::vector<parallel::StateTensor>& state) const;
  void put_together(const parallel::StateTensor& source, int saver, Copy& copy) const;

  topology::MeshShape mesh_;
  topology::MeshCoordinates where_;
  comm::Group& tensor_;
  checkpoint::CheckpointInfo info_;
  std::vector<Copy> copies_;  // of all tensors, in one order on all ranks of a stage, and of its own shards
};

}  // namespace dtrain::state
