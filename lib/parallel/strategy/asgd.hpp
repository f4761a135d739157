#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/step/step_control.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/parameter_server.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/spoiled_gradient.hpp"

namespace dtrain::parallel {

/// `asgd`, asynchronous updates: the last `--servers` data ranks keep the parameters and the optimizer's
/// state, a part each, and compute nothing. Each of the others takes a micro-batch, fetches the parameters,
/// computes a gradient and pushes it, without waiting for another copy; servers apply it as it comes.
/// `--staleness` bounds how far ahead a copy may be; with 0 the ranks run ddp.
///
/// An update has a micro-batch's mean gradient, and of the learning rate the micro-batch's share of its step:
/// as many samples move the parameters as far as in ddp. Where the run uses the agreed model (an epoch ends,
/// the model is validated), all gradients have been applied, and the servers' parameters and state go to all
/// ranks. Running statistics are averaged there, each copy counting by its samples. Source: Dean et al.,
/// "Large scale distributed deep networks", NIPS 2012; Ho et al. 2013 for the bound; Zhang et al.,
/// "Staleness-aware async-SGD", IJCAI 2016, for the divided rate.
class Asgd final : public Strategy {
 public:
  static Abilities can(const Setting& setting);

  /// Collective: as LocalCopy.
  explicit Asgd(const StrategyParts& parts);

  std::optional<WorkUnit> take_work(const WorkRange& steps) override;
  StepOutcome step(const StepPlan& plan, SampleSource& samples) override;
  void synchronise() override {}
  StateView state() override { return {copy_.parameters(), parts_.model, copy_.optimizer()}; }
  void adopt_weights() override { copy_.adopt_weights(); }
  void adopt_optimizer() override { parts_.data.barrier().wait(); }
  void roll_back(std::int64_t /*number*/) override {}
  void compare_copies(std::int64_t number) override;
  optim::LossScaler& scaler() override { return scaler_; }

 private:
  bool serves() const { return parts_.data.rank() >= copies_; }
  int dealer() const { return copies_; }  // the first server
  int servers() const { return parts_.data.size() - copies_; }
  Range part_of_server(int index) const;
  void step_alone(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome);
  void push(const ServerMessage& message);
  void send(const ServerMessage& message, int server, bool with_gradient);
  ServerAnswer receive(int server, bool with_parameters);
  void end(StepOutcome& outcome);
  void spread_state();
  std::int64_t updates_before(std::int64_t step) const;

  StrategyParts parts_;
  int copies_;
  LocalCopy copy_;
  StepControl control_;
  optim::LossScaler scaler_{optim::LossScaler::Use::none};
  std::unique_ptr<ParameterServer> server_;  // null: this rank computes
  WorkRange steps_ = {};                     // that are being done
  std::optional<WorkUnit> unit_;             // in hand
  std::vector<std::int64_t> versions_;       // of the parameters here, by server
  StepTotals own_;                           // since the ranks last agreed
  double own_weight_ = 0;
  SpoiledGradient spoiled_;
};

StrategyEntry asgd();

}  // namespace dtrain::parallel
