#include "parallel/strategy/private/private_steps.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"
#include "parallel/gradients/squares.hpp"
#include "parallel/step/step_statistics.hpp"
#include "parallel/strategy/flat_ranges.hpp"
#include "privacy/accountant.hpp"
#include "privacy/draws.hpp"

namespace dtrain::parallel {
namespace {

Answer runs_privately(const Setting& setting) {
  if (const auto answer = can_be_private(setting); !answer) return answer;
  if (setting.reproducible) return {"with --dp-clip sums agree to rounding only: leave --reproducible out"};
  if (setting.adapts_batch)
    return {"with --dp-clip the expected batch is public and fixed: leave --adaptive-batch out"};
  if (setting.owns_by_speed) return {"with --dp-clip the drawn batches vary: leave --balance data out"};
  if (setting.options.compression != "none")
    return {"with --dp-clip sums travel in all their bits: leave --compression out"};
  return {};
}

}  // namespace

privacy::SampledGaussian mechanism_of(const Setting& setting) {
  const auto& options = setting.options;
  privacy::SampledGaussian mechanism{.sampling = privacy::parse_sampling(options.dp_sampler)};
  const auto records = static_cast<double>(std::max<std::int64_t>(setting.records, 1));
  const double batch = std::min(static_cast<double>(setting.global_batch), records);
  mechanism.rate =
      mechanism.sampling == privacy::Sampling::poisson ? batch / records : 1 / std::ceil(records / batch);
  mechanism.steps = setting.total_steps;
  return with_noise(mechanism, options);
}

Abilities PrivateSteps::can(const Setting& setting) {
  return {.runs = runs_privately(setting),
          .replays_graphs = {"the CPU clips the gradient of each sample"},
          .updates_by_rows = {"noise is added to each row"},
          .rolls_back = {"a step that was made again would have other noise"},
          .copies_parts = {"a private run goes on from checkpoints, with their ledger"},
          .same_bits = {"sums over ranks agree to rounding"},
          .adapts_batch = {"the expected batch is public and fixed"},
          .owns_by_speed = {"the drawn batches vary"}};
}

PrivateSteps::PrivateSteps(const StrategyParts& parts)
    : PrivateAccount(parts, mechanism_of(parts.setting), ""),
      parts_(parts),
      parameters_(parts.model, parts.dtype),
      optimizer_(optim::make_optimizer(parts.setting.optimizer, parameters_.size(),
                                       update_ranges(parts, parameters_), parameters_.values().options())),
      clipper_(parts_, parameters_,
               [this](const StepPlan& one, SampleSource& source, ClippedSum&) {
                 return parts_.engine.compute(one, source, *this, 1.0);
               }),
      control_(parts.world),
      noise_(noise_of(parts)) {
  adopt_weights();
}

void PrivateSteps::adopt_weights() {
  broadcast_parameters(parts_.data, parameters_.values());
  broadcast_buffers(parts_.data, parts_.model);
}

std::vector<std::vector<std::int64_t>> PrivateSteps::draws(int epoch) const {
  const auto records = parts_.setting.records;
  const auto batch = parts_.setting.global_batch;
  const auto steps = (records + batch - 1) / batch;
  if (mechanism().sampling == privacy::Sampling::once_an_epoch)
    return privacy::once_an_epoch_draws(records, steps, draw_seed(), epoch);
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t step = 0; step < steps; ++step)
    all.push_back(
        privacy::poisson_draw(records, mechanism().rate, draw_seed(), (epoch - 1) * steps + step + 1));
  return all;
}

StateView PrivateSteps::state() { return {parameters_, parts_.model, *optimizer_, {}, {ledger_state()}}; }

void PrivateSteps::begin_step(int /*micro_batches*/) {
  for (const auto& entry : parameters_.entries()) entry.parameter->value.mutable_grad().reset();
}

void PrivateSteps::taken_back(int /*index*/) { clipper_.sum().take_sample(); }

/// To this rank's share of the elements.
void PrivateSteps::add_noise(std::int64_t number) {
  const double deviation = mechanism().noise_multiplier * parts_.setting.options.dp_clip;
  const auto own = part_of(parameters_.size(), parts_.data.rank(), parts_.data.size());
  parallel::add_noise(*noise_, parameters_, own, deviation, number,
                      clipper_.sum().values().narrow(0, own.begin, own.size()));
}

StepOutcome PrivateSteps::step(const StepPlan& plan, SampleSource& samples) {
  StepOutcome outcome;
  clipper_.begin_step();
  auto& sum = clipper_.sum().values();
  for (std::size_t m = 0; m < plan.micro_batches.size(); ++m) {
    const auto read = samples.take(plan, m);
    const ScopedSpan span(parts_.sink, Phase::backward, "clip samples");
    outcome.own.add(clipper_.add(plan, m, read, draw_seed()), plan.micro_batches[m].samples());
    outcome.own.micro_batches += 1;
  }
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "noise");
    add_noise(plan.number);
  }
  const at::NoGradGuard no_grad;
  parts_.data.all_reduce(buffer_of(sum), comm::ReduceOp::sum, parts_.buckets.algorithm).wait();
  outcome.own.non_finite = static_cast<double>(clipper_.sum().not_finite());
  const auto agreed = control_.agree(outcome.own, parts_.requests ? parts_.requests() : StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  require(outcome.total.non_finite == 0 && std::isfinite(outcome.total.loss),
          fmt::format("step {} has a loss or a sample's gradient that is not finite", plan.number),
          {.subject = "training", .advice = "use a smaller --learning-rate, or look at the data"});
  double squares = 0;
  for (const auto& part : squares_of(sum, std::vector<Range>{{0, parameters_.size()}})) squares += part.sum;
  const double batch = mechanism().rate * static_cast<double>(parts_.setting.records);
  outcome.gradient_norm = std::sqrt(squares) / batch;
  const double clip = optim::clip_coefficient(outcome.gradient_norm, parts_.grad_clip);
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
    add_step();
    optimizer_->step(parameters_.values(), sum, clip / batch, plan.learning_rate,
                     scaler_.updates(plan.number));
  }
  return outcome;
}

void PrivateSteps::compare_copies(std::int64_t number) {
  require_same_copies(parts_.data, parts_.world, parts_.model, parameters_.values(), number);
}

std::string PrivateSteps::in_words() const {
  const auto& options = parts_.setting.options;
  return fmt::format(
      "each record, one more or less; clip {:g}, noise {:.4f} x clip ({}), sampler {} with rate {:.6g}, "
      "accountant {}{}",
      options.dp_clip, mechanism().noise_multiplier, options.noise_source, options.dp_sampler,
      mechanism().rate, options.dp_accountant,
      clipper_.obstacle().empty() ? ""
                                  : "; samples pass through the model one by one: " + clipper_.obstacle());
}

}  // namespace dtrain::parallel
