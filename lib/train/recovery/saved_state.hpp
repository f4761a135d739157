#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/writer.hpp"
#include "models/model.hpp"
#include "parallel/strategy/state_view.hpp"
#include "train/setup/job.hpp"

namespace dtrain::train {

/// A tensor of a state as one rank holds it.
struct StateTensor {
  std::string group;  ///< model, optimizer/STATE
  std::string name;
  at::Tensor value;
  std::shared_ptr<const models::HeldSlice> slice;  ///< Null: the whole.
};

/// All of a rank's, in one order on all ranks of a stage; views of the state.
std::vector<StateTensor> state_tensors(const parallel::StateView& state);

/// To be written: `value`, contiguous, is the whole tensor. Borrowed.
checkpoint::TensorRef reference_to(const std::string& group, const std::string& name,
                                   const at::Tensor& value);

/// A copy of this rank's share of a state, taken between two steps: the run may go on while it is kept or
/// written. The ranks that hold the same stage of the model, its copies and its slices, share out its
/// tensors; who has one has the whole of it.
class SavedState {
 public:
  /// Borrows `job`.
  explicit SavedState(Job& job) : job_(job) {}

  /// Copies; memory of an earlier copy is used again. Collective over the ranks of each stage.
  void take(const parallel::StateView& state, checkpoint::CheckpointInfo info);

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
    at::Tensor value;  // contiguous; undefined where another rank has it
  };
  std::vector<int> owners(const std::vector<StateTensor>& sources) const;
  void put_together(const StateTensor& source, int owner, Copy& copy) const;

  Job& job_;
  checkpoint::CheckpointInfo info_;
  std::vector<Copy> copies_;  // of all tensors, in one order on all ranks of a stage
};

/// `float32`, ... as checkpoints name it.
std::string dtype_name(at::ScalarType type);

}  // namespace dtrain::train
