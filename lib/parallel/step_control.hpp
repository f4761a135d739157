#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "comm/group.hpp"

namespace dtrain::parallel {

/// What the ranks tell one another at the end of a step, each its own share; all fields are summed.
struct StepShare {
  double loss = 0;     ///< Sum over this rank's samples.
  double weight = 0;   ///< Samples, target tokens or class weights in it.
  double correct = 0;  ///< Rightly classified samples or tokens.
  double counted = 0;  ///< Those that `correct` is out of.
  double samples = 0;
  double gradient_squares =
      0;                     ///< Sum of squares over the part of the agreed gradient this rank vouches for.
  double non_finite = 0;     ///< NaN or infinite elements in that part.
  double micro_batches = 0;  ///< Pieces this rank has computed.
  double stop_requests = 0;  ///< 1 when this rank was asked to stop.
  double save_requests = 0;  ///< 1 when by this rank's clock a checkpoint is due.

  /// Adds the samples of another step and what they came to.
  void add_samples(const StepShare& other) {
    loss += other.loss;
    weight += other.weight;
    correct += other.correct;
    counted += other.counted;
    samples += other.samples;
    micro_batches += other.micro_batches;
  }

  /// A loss that is not a number, and what goes with it.
  void leave_losses_out() { loss = weight = correct = counted = 0; }

  /// Nothing of what another rank counts already: samples and their losses.
  void leave_samples_out() { loss = weight = correct = counted = samples = micro_batches = 0; }
};

/// The one small all_reduce that ends the communication of each step. No rank updates its parameters before
/// it has completed: a step is applied by all or by none.
class StepControl {
 public:
  /// Collective: allocates memory shared by the group.
  explicit StepControl(comm::Group& group);

  /// The sum of all ranks' shares. Collective and blocking; every rank gets the same bits.
  StepShare agree(const StepShare& share);

 private:
  static constexpr std::size_t kFields = 10;
  comm::Group& group_;
  std::unique_ptr<comm::SharedBuffer> memory_;
};

}  // namespace dtrain::parallel
