#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/job_of_test.hpp"
#include "parallel/small_model.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// Brings nothing: the engine computes without samples.
class NoSamples final : public SampleSource {
 public:
  Samples take(const StepPlan&, std::size_t) override { return {}; }
  std::vector<Samples> look_ahead(const StepPlan&) override { return {}; }
  void read_ahead() override {}
};

/// Pulls each parameter to `target`: the loss of a sample is curvature / 2 (p - target)^2, added up over all
/// elements, and a micro-batch has `weight` samples.
class QuadraticEngine final : public StepEngine {
 public:
  explicit QuadraticEngine(models::Model& model) : model_(model) {}

  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource&, LocalSums& sums,
                                      double /*loss_scale*/) override {
    sums.begin_step(static_cast<int>(plan.micro_batches.size()));
    std::vector<MicroBatchLoss> losses;
    for (const auto& micro_batch : plan.micro_batches) {
      const double goal = target_of ? target_of(micro_batch) : target;
      const double counts = target_of ? static_cast<double>(micro_batch.samples()) : weight;
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (const auto* parameter : model_.parameters()) {
        loss = loss + (parameter->value - goal).square().sum() * (0.5 * curvature * counts * spoils);
      }
      loss.backward();
      sums.taken_back(static_cast<int>(micro_batch.index));
      losses.push_back({micro_batch.index,
                        {.loss = loss.detach(), .correct = {}, .weight = counts},
                        micro_batch.samples()});
    }
    return losses;
  }
  std::vector<const models::Parameter*> met_again() const override { return {}; }

  double target = 0;
  double curvature = 1;
  double weight = 2;
  double spoils = 1;  ///< A factor of the loss.
  /// Where micro-batches have targets of their own; their weight is then that of their samples. Empty: none
  /// has.
  std::function<double(const MicroBatch&)> target_of = {};

 private:
  models::Model& model_;
};

/// Copies of a small model in fp64, one on each rank of the test, that a strategy of rounds trains.
class JobOfRounds {
 public:
  explicit JobOfRounds(std::unique_ptr<models::Model> model = small_model(),
                       comm::Drive drive = comm::Drive::inline_)
      : job_(topology::Axis::data, drive),
        model_(std::move(model)),
        cuts_(cut_stages(std::vector<double>(model_->layers().size(), 1.0), 1, 1, model_->name())),
        engine(*model_) {}

  StrategyParts parts(const StrategyOptions& options, const optim::OptimizerConfig& optimizer) {
    Setting setting;
    setting.mesh.data = copies();
    setting.options = options;
    setting.optimizer = optimizer;
    setting.micro_batches = copies();
    setting.model = model_.get();
    return {.setting = std::move(setting),
            .world = job_.world(),
            .data = job_.data(),
            .pipe = job_.pipe(),
            .tensor = job_.tensor(),
            .queue = job_.queue(),
            .model = *model_,
            .cuts = cuts_,
            .engine = engine,
            .sink = job_.sink(),
            .dtype = at::kDouble,
            .requests = [this] { return requests; },
            .tell = [this](auto kind,
                           auto detail) { told.push_back(std::string(kind) + ": " + std::string(detail)); }};
  }

  comm::Queue& queue() { return job_.queue(); }
  int rank() { return job_.rank(); }
  int copies() { return job_.data().size(); }
  models::Model& model() { return *model_; }

  enum class Work { one_micro_batch, none };
  /// One step of this copy.
  StepOutcome step(Strategy& strategy, std::int64_t number, bool pauses = false,
                   Work work = Work::one_micro_batch) {
    StepPlan plan{.number = number, .learning_rate = rate, .pauses = pauses};
    if (work == Work::one_micro_batch)
      plan.micro_batches.push_back({.index = static_cast<std::uint32_t>(job_.rank()), .ids = {1, 2, 3}});
    return strategy.step(plan, samples_);
  }

  /// All parameters, one after the other, [n].
  at::Tensor weights() const {
    std::vector<at::Tensor> all;
    for (const auto* parameter : model_->parameters()) all.push_back(parameter->value.detach().flatten());
    return at::cat(all).to(at::kDouble).clone();
  }

 private:
  JobOfTest job_;
  std::unique_ptr<models::Model> model_;
  StageCuts cuts_;
  NoSamples samples_;

 public:
  QuadraticEngine engine;
  StepRequests requests;
  std::vector<std::string> told;
  double rate = 0.25;
};

/// The model of a test, with other weights on each rank.
inline std::unique_ptr<models::Model> unequal_model() {
  auto model = small_model();
  const int rank = comm::Communicator::duplicate(MPI_COMM_WORLD).rank();
  model->initialise(static_cast<std::uint64_t>(7 + rank));
  return model;
}

/// What it has on rank 0, which all copies are to begin with, [n] in fp64. Collective.
inline at::Tensor weights_of_rank_0() { return JobOfRounds().weights().to(at::kFloat).to(at::kDouble); }

/// The largest difference between elements.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace dtrain::parallel
