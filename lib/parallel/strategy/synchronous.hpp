#pragma once

#include <memory>
#include <vector>

#include "models/layers/word_table.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_sums.hpp"
#include "parallel/gradients/half_weights.hpp"
#include "parallel/gradients/reproducible_totals.hpp"
#include "parallel/gradients/row_updates.hpp"
#include "parallel/gradients/shard_gather.hpp"
#include "parallel/gradients/squares.hpp"
#include "parallel/gradients/tied_parameters.hpp"
#include "parallel/memory/layer_shards.hpp"
#include "parallel/memory/node_memory.hpp"
#include "parallel/step/late_decision.hpp"
#include "parallel/step/repeated_work.hpp"
#include "parallel/step/step_control.hpp"
#include "parallel/step/step_statistics.hpp"
#include "parallel/step/step_undo.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/strategy.hpp"
#include "parallel/tensor/common_parameters.hpp"

namespace dtrain::parallel {

/// `ddp`: in each step the gradients of all copies are summed, and all copies make the same update. The ranks
/// of a node share one copy of parameters and optimizer state where they can, and each updates a part of it.
///
/// `zero1`: the same, but where the copies share no memory each rank has the optimizer's state of a shard of
/// the parameters only, gets the sums of its gradients, updates it and gives it to the others.
///
/// `zero2`: the same, and each rank keeps the gradient sums of its shard only, also where the copies share
/// memory. Sums whose bits may not depend on the ranks are whole until they are added up, as with `ddp`.
///
/// `zero3`: the same, and where the copies share no memory each rank keeps its shard of the parameters only:
/// a layer's are gathered while it computes. Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward
/// Training Trillion Parameter Models", SC 2020.
///
/// A step ends with one control message. It is applied by all ranks or by none.
///
/// With fused kernels (Setting::fused_kernels), where each rank holds all gradients and can say on its own
/// what the update will be, the device decides (LateDecision), and a step's message has losses and decision
/// of the step before. A gradient that is not finite is left out by all ranks at once, and reported, or
/// followed by a smaller scale, one step later; the step that was computed in between has the same
/// parameters.
class Synchronous final : public Strategy, private LocalSums {
 public:
  /// What of the state each copy of the model holds a shard of only.
  enum class Shards { nothing, optimizer, gradients, parameters };
  static Abilities can(const Setting& setting, Shards shards = Shards::nothing);

  /// Collective: moves the model's values into the flat block, and gives all copies those of the first.
  explicit Synchronous(const StrategyParts& parts, Shards shards = Shards::nothing);

  StepOutcome step(const StepPlan& plan, SampleSource& samples) override;
  std::optional<StepOutcome> settle() override;
  void synchronise() override;
  StateView state() override;
  void open_weights(std::size_t layer) override;
  void close_weights(std::size_t layer) override;
  void adopt_weights() override;
  void adopt_optimizer() override;
  void roll_back(std::int64_t number) override;
  void compare_copies(std::int64_t number) override;
  AdaptiveBatch* adaptive_batch() override { return adaptive_.get(); }
  optim::LossScaler& scaler() override { return scaler_; }

 private:
  std::unique_ptr<LayerShards> layer_shards(const StrategyParts& parts, Shards shards);
  void begin_step(int micro_batches) override;
  void taken_back(int index) override { gradients_->taken_back(index); }

  void begin_compression(const StepPlan& plan);
  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples);
  std::vector<MicroBatchLoss> compute_by_rows(const StepPlan& plan, SampleSource& samples);
  void finish_gradients();
  void add_up(const std::vector<MicroBatchLoss>& losses, StepTotals& own);
  void measure_gradient(const StartedSquares& started, StepTotals& own) const;
  void measure_copy(StepTotals& own) const;
  void agree(StepOutcome& outcome);
  void update(const StepPlan& plan, double scale);
  void agree_on_common();
  bool decides_late() const;
  std::unique_ptr<RepeatedWork> late_update() const;
  void step_late(const StepPlan& plan, std::vector<MicroBatchLoss> losses, double loss_scale,
                 StepOutcome& outcome);
  void take_late(StepOutcome& outcome);
  void close_late(const StepTotals& total, StepOutcome& outcome);

  StrategyParts parts_;
  Shards shards_;
  NodeMemory memory_;
  FlatParameters parameters_;
  std::unique_ptr<GradientCompression> compression_;  // null: gradients travel in all their bits
  std::unique_ptr<LayerShards> layers_;  // null: the parameters are whole; else parameters_ holds a shard
  std::unique_ptr<GradientSums> gradients_;
  std::unique_ptr<ShardGather> gather_;     // null: no rank holds a shard only
  std::optional<std::vector<Range>> held_;  // what this rank has the optimizer's state of; not set: all
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<HalfWeights> halves_;  // null: products convert the parameters
  bool writes_halves_;                   // the optimizer does
  std::unique_ptr<RowUpdates> rows_;     // null: all gradients are dense; the others leave its table out
  std::unique_ptr<ReproducibleTotals> totals_;  // null: totals are added up as is fastest
  StepControl control_;
  StepStatistics statistics_;
  TiedParameters tied_;
  std::unique_ptr<CommonParameters> common_;  // null: the copies stay the same by themselves
  std::unique_ptr<StepUndo> undo_;            // null: no step will have to be rolled back
  std::vector<Range> counted_parts_;          // of the flat gradient, in norms
  optim::LossScaler scaler_;
  std::unique_ptr<AdaptiveBatch> adaptive_;    // null: a step takes one batch
  std::unique_ptr<LateDecision> late_;         // null: the CPU decides, in the same step
  std::unique_ptr<RepeatedWork> late_update_;  // null: no update is captured
  LateDecision::Outcome taken_ = {};           // what take_late() took
};

StrategyEntry synchronous();
StrategyEntry zero1();
StrategyEntry zero2();
StrategyEntry zero3();

}  // namespace dtrain::parallel
