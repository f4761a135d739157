#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/memory/node_memory.hpp"

namespace dtrain::parallel {

/// What a step's update is about to change, kept until the next step's: parameters, optimizer state and
/// buffers. When a rank dies in the middle of an update, its part of what the ranks of a node share is half
/// done; those that are left take the whole step back and are all where the step began.
class StepUndo {
 public:
  /// `update_parts`: what this rank updates of `parameters`, always the same; `shared`: whether the ranks of
  /// `group`, which hold the same parameters, have them in one memory. All are borrowed. Collective over
  /// `group`. Throws Error when there is no room.
  StepUndo(comm::Group& group, FlatParameters& parameters, optim::Optimizer& optimizer, models::Model& model,
           const std::vector<Range>& update_parts, bool shared);

  /// Keeps what is there before this rank's update of step `number`. Steps are kept in order, and no rank
  /// comes to a step before all have done the one before.
  void keep(std::int64_t number);

  /// Rolls a half-applied update back: restores what was there before step `number`, wherever a rank of the
  /// node, dead or alive, had begun to update, and changes nothing elsewhere. No rank may update meanwhile.
  /// All surviving ranks of the group call it; they write the same.
  void take_back(std::int64_t number);

 private:
  /// Of each rank: the step whose update its copy is from before; then its parts.
  std::atomic_ref<std::int64_t> kept_step(int rank) const;
  std::vector<Range> parts_of(int rank) const;
  void copy(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to, int rank) const;

  std::vector<at::Tensor> values_;  // flat: the parameters, and each state of the optimizer
  NodeMemory memory_;
  std::vector<at::Tensor> kept_;  // copies, laid out alike, in memory that the node shares if the values are
  std::int64_t most_parts_;       // that a rank has
  int ranks_;                     // that write to this memory
  int rank_;                      // of those
  std::unique_ptr<comm::SharedBuffer> shared_words_;  // null: words_ has them
  std::vector<std::int64_t> own_words_;
  std::int64_t* words_;
  std::vector<at::Tensor> buffers_;  // the model's, this rank's own
  std::vector<at::Tensor> kept_buffers_;
};

}  // namespace dtrain::parallel
