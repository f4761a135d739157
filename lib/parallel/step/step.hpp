#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "parallel/step/ownership.hpp"

namespace dtrain::parallel {

/// A piece of a step: samples that pass through the model together, forward and back.
struct MicroBatch {
  std::uint32_t index = 0;        ///< Within the step, over all ranks of the data axis.
  std::vector<std::int64_t> ids;  ///< Of its samples, in their order; at least one, unless they are drawn
                                  ///< by chance for a local step of a client.

  std::int64_t samples() const { return static_cast<std::int64_t>(ids.size()); }
};

/// A client of federated training that a rank simulates: what it does in a round.
struct ClientWork {
  int client = 0;
  std::int64_t samples = 0;  ///< That it holds: its weight.
  std::size_t first = 0;     ///< Of StepPlan::micro_batches, each of which is a local step.
  std::size_t steps = 0;     ///< Local steps.
  int answers = kAllPhases;  ///< Phases of a secure sum that it answers: above 2, its update is in the sum.

  static constexpr int kAllPhases = 5;
};

/// A client that was sampled for a round and drops out before it hands anything in.
struct ClientDropout {
  int client = 0;
  int answers = 0;  ///< Phases of a secure sum that it answers before: 0 to 2.
};

/// A round of federated training.
struct RoundPlan {
  std::vector<ClientWork> clients;  ///< Of this rank, by ascending number.
  int sampled = 0;                  ///< Clients that take part, on all ranks.
  int dropped = 0;                  ///< More that were sampled, and hand nothing in.
  std::int64_t samples = 0;         ///< That the clients that take part hold.
  int of = 0;                       ///< Clients that there are.
  std::vector<int> everyone = {};   ///< Those that take part on all ranks, ascending.
  // For secure sums, in which those that drop out take part at first:
  std::vector<int> asked = {};               ///< All that were sampled, ascending, on all ranks.
  std::vector<ClientDropout> dropouts = {};  ///< Of this rank.
  std::int64_t most_samples = 0;             ///< Of any client that there is.
};

/// What came of a round of federated training: the same on all ranks.
struct RoundOutcome {
  int handed_in = 0;         ///< Updates.
  int sampled = 0;           ///< Clients, with those that dropped out or were late.
  std::int64_t samples = 0;  ///< Of the clients that handed in.
  double update_norm = 0;    ///< Of the mean of all updates.
  std::string problem = {};  ///< On rank 0: why a secure sum has failed; the model is as it was.
  std::string news = {};     ///< On rank 0, seldom: what a user should hear of it.
};

/// What a rank's copy of the model does in one step.
struct StepPlan {
  std::int64_t number = 1;                ///< Counts from 1 over the whole run.
  std::vector<MicroBatch> micro_batches;  ///< Of this copy, by ascending index; perhaps none.
  /// Of all copies, where it is not even_ownership(); null: it is, in this step and all before.
  std::shared_ptr<const Ownership> owned = nullptr;
  std::int64_t samples = 0;  ///< Of all copies' micro-batches, where they make the step together.
  double learning_rate = 0;
  double share =
      1;  ///< Of the step's samples, those in micro_batches, where ranks take them at their own pace.
  std::shared_ptr<const RoundPlan> round = nullptr;  ///< Null: the samples belong to no clients.
  /// Another step follows at once: its first micro-batch may be read while a device computes this step.
  bool another_follows = false;
  /// The run uses the agreed model after this step: the epoch or the run ends, or the model is validated. The
  /// same on all ranks.
  bool pauses = false;
};

/// One micro-batch of a step, handed out to one copy.
struct WorkUnit {
  std::int64_t step = 1;
  int micro_batch = 0;
};

/// Steps [first, last] of a run, whose micro-batches are handed out one by one.
struct WorkRange {
  std::int64_t first = 1;
  std::int64_t last = 1;
};

/// A micro-batch as the model takes it.
struct Samples {
  models::Tensors inputs;
  at::Tensor targets;
};

/// The loss of one micro-batch. Its tensors may still be computed by a device.
struct MicroBatchLoss {
  std::uint32_t micro_batch = 0;  ///< MicroBatch::index
  models::LossSums sums;
  std::int64_t samples = 0;
};

/// The same with all tensors in the CPU's memory. Waits for a device once.
std::vector<MicroBatchLoss> on_cpu(std::vector<MicroBatchLoss> losses);
/// `numbers_too`, double [n] beside the losses, comes along in the same copy. Undefined: nothing does.
std::vector<MicroBatchLoss> on_cpu(std::vector<MicroBatchLoss> losses, at::Tensor& numbers_too);

/// What one step, or several, came to on one rank, or on all. Every field is a sum.
struct StepTotals {
  double loss = 0;
  double weight = 0;   ///< Samples, target tokens or class weights in `loss`.
  double correct = 0;  ///< Correctly classified samples or tokens.
  double counted = 0;  ///< Those that `correct` is out of.
  double samples = 0;
  double gradient_squares = 0;  ///< Over the part of the agreed gradient that each rank vouches for.
  double non_finite = 0;        ///< NaN or infinite elements in that part.
  double micro_batches = 0;     ///< That were computed.
  // Of steps whose noise is measured, over the copies:
  double copy_squares = 0;  ///< Of each one's mean gradient, the squared norm.
  double copy_inverse = 0;  ///< 1 / its samples.
  double copies = 0;        ///< In these sums.

  /// Adds a micro-batch or another batch of `samples` samples.
  void add(const models::LossSums& sums, std::int64_t samples);

  /// Adds the samples of another step, and what they came to.
  void add_samples(const StepTotals& other);

  /// Removes a loss that is not a number, and what belongs to it.
  void leave_losses_out() { loss = weight = correct = counted = 0; }

  /// Removes what another rank counts already: samples and their losses.
  void leave_samples_out() { loss = weight = correct = counted = samples = micro_batches = 0; }
};

/// What ranks ask of all ranks at the end of a step. Each field counts the ranks that ask.
struct StepRequests {
  double stop = 0;  ///< The run is to stop.
  double save = 0;  ///< A checkpoint is due.
};

/// What one step came to.
struct StepOutcome {
  StepTotals own;            ///< Of this rank's samples.
  StepTotals total;          ///< Of all ranks' samples since the last agreed step: the same on every rank.
  StepRequests requests;     ///< Of all ranks.
  double gradient_norm = 0;  ///< Of the mean gradient, before clipping.
  /// The copies have agreed after this step: Strategy::state() can be had. Where they have not, `total` and
  /// `requests` are empty. The same on every rank; true for StepPlan::pauses.
  bool agreed = true;
  /// Updates by how many others came between the parameters that they were computed on and them, since the
  /// last agreed step; empty where all are computed on the newest.
  std::vector<std::int64_t> staleness = {};
  std::optional<RoundOutcome> round = {};  ///< Where StepPlan::round was given.
  bool left_out = false;                   ///< Nothing was updated: in fp16 the gradient was not finite.
  /// `own`, `total`, `gradient_norm` and `left_out` are those of the step before; empty: they are known
  /// already, or there was none. Strategy::settle() gives those of the last step. `requests` are of now.
  bool late = false;
};

}  // namespace dtrain::parallel
