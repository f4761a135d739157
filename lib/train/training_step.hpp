#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "comm/group.hpp"
#include "core/span_sink.hpp"
#include "models/embedding_bag.hpp"
#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradient_sums.hpp"
#include "parallel/pipeline.hpp"
#include "parallel/reproducible_totals.hpp"
#include "parallel/row_updates.hpp"
#include "parallel/sample_source.hpp"
#include "parallel/step.hpp"
#include "parallel/step_control.hpp"
#include "parallel/step_statistics.hpp"
#include "parallel/step_undo.hpp"
#include "parallel/tied_parameters.hpp"
#include "train/injection.hpp"
#include "train/loss_scaler.hpp"
#include "train/step_graphs.hpp"

namespace dtrain::train {

using parallel::StepOutcome;
using parallel::StepPlan;

/// One optimizer update: this rank's share of its micro-batches forward and back, the gradients summed over
/// the data ranks while backward runs, the control message, and then, on all ranks or on none, the update.
class TrainingStep {
 public:
  struct Parts {
    comm::Group& world;  ///< All ranks: they agree on the step.
    comm::Group& data;   ///< Those whose gradients are summed.
    models::Model& model;
    parallel::Pipeline& pipeline;
    parallel::Pipelining pipelining = parallel::Pipelining::layerwise;
    int stages_per_rank = 1;
    parallel::FlatParameters& parameters;
    parallel::GradientSums& gradients;
    parallel::StepControl& control;
    parallel::StepStatistics& statistics;
    parallel::TiedParameters& tied;
    optim::Optimizer& optimizer;
    SpanSink& sink;
    std::optional<at::ScalarType> half = {};         ///< Mixed precision, see models::ProductScope.
    models::Kernels kernels = models::Kernels::own;  ///< See models::KernelScope.
    models::TrainingLoss training_loss = {};
    parallel::ReproducibleTotals* totals = nullptr;  ///< Null: totals are added up as is fastest.
    parallel::RowUpdates* rows = nullptr;  ///< Of the first layer's table; null: its gradient is dense.
    parallel::StepUndo* undo = nullptr;    ///< Null: no step will have to be taken back.
    Injection* injection = nullptr;        ///< Null: no fault is wanted.
    StepGraphs* graphs = nullptr;          ///< Null: the device is given each operation of each step.
    /// What this rank asks of all ranks at the end of a step.
    std::function<parallel::StepRequests()> requests = {};
    bool counts_common = true;  ///< Whether this rank counts what its tensor group has in common.
  };
  /// `grad_clip`: largest norm of the whole mean gradient; 0: no limit.
  TrainingStep(const Parts& parts, std::uint64_t seed, double grad_clip);

  /// Takes the plan's micro-batches from `samples` on the ranks that need them: the first and the last of a
  /// pipeline. Where another step follows, a device's first micro-batch of that one is on its way before the
  /// device has done with this step. Collective. In fp16 a gradient that is not finite is left out
  /// with a smaller scale for the next; otherwise throws Error when the loss or a gradient is not finite. No
  /// rank has updated then.
  StepOutcome run(const StepPlan& plan, parallel::SampleSource& samples);

  LossScaler& scaler() { return scaler_; }
  const LossScaler& scaler() const { return scaler_; }

 private:
  const parallel::Schedule& schedule_for(std::size_t micro_batches);
  void begin(const StepPlan& plan);
  void compute(const StepPlan& plan, parallel::SampleSource& samples);
  void compute_by_rows(const StepPlan& plan, parallel::SampleSource& samples);
  bool replay(const StepPlan& plan, parallel::SampleSource& samples);
  using SamplesOf = std::function<Samples(std::size_t micro_batch)>;
  void give(const StepPlan& plan, const SamplesOf& samples_of);
  models::LossSums loss_of(const models::Tensors& outputs, const at::Tensor& targets) const;
  at::Tensor scaled(const at::Tensor& loss) const;
  std::vector<Range> counted_parts() const;
  void measure_gradient(parallel::StepTotals& own) const;
  [[noreturn]] void report_non_finite(std::int64_t step, const parallel::StepTotals& total) const;
  std::int64_t last_non_finite() const;
  bool holds_non_finite(const models::Parameter& parameter) const;

  Parts parts_;
  std::vector<MicroBatchLoss> losses_;                   // of this step
  std::map<std::size_t, parallel::Schedule> schedules_;  // by number of micro-batches
  std::vector<Range> counted_parts_;                     // of the flat gradient, in norms
  std::uint64_t seed_;
  double grad_clip_;
  LossScaler scaler_;
};

}  // namespace dtrain::train
