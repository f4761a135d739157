#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/group.hpp"
#include "models/model.hpp"
#include "parallel/memory/exchange_memory.hpp"

namespace dtrain::parallel {

/// The state that a step changes without gradients: BatchNorm's running statistics. Every forward pass adds
/// to its layer's sums; once per step the sums of all micro-batches of all ranks are brought together, and
/// every rank applies the same update, so that all hold the same bits.
class StepStatistics {
 public:
  /// Collective over `group`: the model's sums become views of memory that the group shares. The model must
  /// outlive this object. `rows`: 1, or the micro-batches of a step, over all ranks, to be added up in their
  /// order: the same bits then, whichever rank has which.
  StepStatistics(models::Model& model, comm::Group& group, int rows = 1);
  ~StepStatistics();
  StepStatistics(const StepStatistics&) = delete;
  StepStatistics& operator=(const StepStatistics&) = delete;

  /// Forgets the last step's sums.
  void begin_step();

  /// Starts adding up over the ranks. Collective; to be called after the step's last forward pass. A step
  /// without a call has the sums of this rank alone.
  void exchange();

  /// Waits for the sums. apply() does it, too.
  void take_in();
  /// After take_in(): the weight of each sum over all ranks, which apply() gives a device along with what it
  /// is to compute. The rest it gives is the same in each step.
  const std::vector<double>& weights() const { return step_weights_; }

  /// Changes the buffers; to be called only once the step is agreed upon. Without a call the buffers stay as
  /// they were: a step is applied by all or by none.
  void apply();
  /// The same if `decision`, bytes of a kernels::UpdateDecision beside the buffers, says that the step is
  /// applied: read where it lies, so that nothing waits for a device.
  void apply_as_decided(const at::Tensor& decision);

 private:
  void update_averages();
  bool on_device() const;

  comm::Group& group_;
  std::vector<models::Buffer*> averaged_;  // those with sums, in the model's order
  std::vector<models::Buffer*> counters_;
  std::optional<ExchangeMemory> memory_;  // doubles: all sums, then each buffer's weight
  std::int64_t sums_ = 0;                 // elements
  comm::Handle handle_;
  std::unique_ptr<comm::SharedBuffer> weights_;  // of a device's buffers, where the CPU reads them
  comm::Handle weighed_;
  bool exchanged_ = false;  // in this step
  bool taken_in_ = false;   // likewise
  std::vector<double> step_weights_;
};

/// Gives every rank the buffers of the group's rank 0 and verifies by hash that all hold the same. Collective
/// and blocking. Throws Error when a rank differs afterwards.
void broadcast_buffers(comm::Group& group, models::Model& model);

}  // namespace dtrain::parallel
