#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "comm/emulation/virtual_clock.hpp"
#include "comm/group.hpp"
#include "comm/queue.hpp"
#include "core/span_sink.hpp"
#include "models/model.hpp"
#include "optim/loss_scaler.hpp"
#include "parallel/gradients/gradient_buckets.hpp"
#include "parallel/pipeline/stage_cuts.hpp"
#include "parallel/step/captures.hpp"
#include "parallel/step/sample_source.hpp"
#include "parallel/step/step.hpp"
#include "parallel/step/step_capture.hpp"
#include "parallel/step/step_engine.hpp"
#include "parallel/strategy/abilities.hpp"
#include "parallel/strategy/adaptive_batch.hpp"
#include "parallel/strategy/federated/client_models.hpp"
#include "parallel/strategy/private_training.hpp"
#include "parallel/strategy/state_view.hpp"

namespace dtrain::parallel {

/// What a strategy is made of. Everything is borrowed.
struct StrategyParts {
  Setting setting;
  comm::Group& world;  ///< All ranks.
  comm::Group& data;   ///< Those that hold a copy of the same part of the model.
  /// Of `data`, those on this node, and those of its other nodes in this rank's place: where the state is to
  /// be shared out within nodes alone. Null: among all.
  comm::Group* data_in_node = nullptr;
  comm::Group* data_across = nullptr;
  /// The ranks of `data`, for gathers that are not to wait for its sums. Null: `data` gathers.
  comm::Group* data_gathers = nullptr;
  comm::Group& pipe;    ///< Those that hold the other stages of this copy.
  comm::Group& tensor;  ///< Those that hold the other slices of this stage.
  comm::Queue& queue;
  models::Model& model;  ///< This rank's layers, initialised.
  const StageCuts& cuts;
  StepEngine& engine;
  StepCapture* capture = nullptr;  ///< Null: no step is captured.
  CaptureNews capture_news = {};   ///< Of what the strategy captures; needed with `capture`.
  SpanSink& sink;
  at::ScalarType dtype = at::kFloat;  ///< Of parameters, gradients and the optimizer's state.
  at::Device device = at::kCPU;
  bool decays_matrices_only = false;  ///< Weight decay spares parameters of fewer than two dims.
  double grad_clip = 0;               ///< Largest norm of the mean gradient; 0: no limit.
  BucketConfig buckets = {};          ///< BucketConfig::update and compression are the strategy's choice.
  std::uint64_t seed = 0;             ///< Of the run's random numbers.
  /// What this rank asks of all ranks at the end of a step. Empty: nothing.
  std::function<StepRequests()> requests = {};
  /// Takes what the strategy decides within a step, for the run's events. Empty: nothing does.
  using Tell = std::function<void(std::string_view kind, std::string_view detail)>;
  Tell tell = {};
  /// Keeps the ledger of a private run, as PrivateTraining::ledger() has it, where a run that was killed
  /// finds it; on rank 0, before others learn what is new in it. Empty: the caller of step() keeps it
  /// afterwards.
  std::function<void(const std::string& lines)> keep_ledger = {};
  bool counts_common = true;  ///< Whether this rank counts what its tensor group has in common.
  /// Where the strategy may keep files of its own, which all ranks see; empty: nowhere.
  std::string folder = {};
  /// The steps of the checkpoints from which the run can go on, ascending. Empty: there are none.
  std::function<std::vector<std::int64_t>()> kept_steps = {};
  comm::VirtualClock* clock = nullptr;      ///< Of an emulated machine, for messages; null: there is none.
  models::TrainingLoss training_loss = {};  ///< Of what passes through the model without the engine.
};

/// How the copies of a model agree: what happens with the gradients that a StepEngine computes. It owns
/// parameters, optimizer state, and all that is exchanged between the ranks of the data axis.
///
/// All ranks make the same calls in the same order; each call is collective unless it says otherwise.
class Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// One step: this rank's micro-batches forward and back, what the copies agree on, and the update. In fp16
  /// a gradient that is not finite is left out with a smaller scale for the next; otherwise throws Error when
  /// the loss or a gradient is not finite. No rank has updated then.
  virtual StepOutcome step(const StepPlan& plan, SampleSource& samples) = 0;

  /// After a step with StepOutcome::late: what the last step came to, which no outcome has told yet. Nothing
  /// where all is told. Throws as step() does. Collective, and waits for the device.
  virtual std::optional<StepOutcome> settle() { return std::nullopt; }

  /// Where Abilities::deals_work: the next micro-batch of `steps` for this rank, each to one rank; empty
  /// where there is none for it any more. Not collective: it may wait for other ranks. A plan that pauses
  /// follows the last one, without micro-batches, with which all ranks come to agree.
  virtual std::optional<WorkUnit> take_work(const WorkRange& /*steps*/) { return std::nullopt; }

  /// Makes state() the agreed model, before evaluation and saving; after a step with StepOutcome::agreed.
  virtual void synchronise() = 0;

  /// After synchronise(): the agreed model. Not collective.
  virtual StateView state() = 0;

  /// A layer's weights (index in the model) are about to be read from a file into the model, layer after
  /// layer: there is memory for them until they are closed.
  virtual void open_weights(std::size_t /*layer*/) {}
  virtual void close_weights(std::size_t /*layer*/) {}
  /// The weights and buffers in state() were read from a file: all copies take over the first one's.
  virtual void adopt_weights() = 0;
  /// The optimizer's state was read from a file, each rank its own part.
  virtual void adopt_optimizer() = 0;

  /// Where Abilities::rolls_back: makes everything as it was before step `number`, if this rank or another
  /// one of its node had begun to update. Not collective, but all survivors call it before any of them
  /// continues.
  virtual void roll_back(std::int64_t number) = 0;

  /// Compares what the copies hold, by hash; `number`: the step done last. Throws Error naming the ranks that
  /// hold something else than most.
  virtual void compare_copies(std::int64_t number) = 0;

  /// How many batches a step takes, by the noise of its gradients; null: one. Not collective.
  virtual AdaptiveBatch* adaptive_batch() { return nullptr; }

  /// Of a strategy whose steps are differentially private; null: they are not. Not collective.
  virtual PrivateTraining* privacy() { return nullptr; }

  /// Of clients that train alone; null: all have the agreed model. Not collective.
  virtual ClientModels* client_models() { return nullptr; }

  /// What the loss is multiplied by, and the number of updates. Not collective.
  virtual optim::LossScaler& scaler() = 0;
};

}  // namespace dtrain::parallel
