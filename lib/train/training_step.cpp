#include "train/training_step.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/planted_fault.hpp"
#include "models/precision.hpp"
#include "optim/schedule.hpp"
#include "parallel/simulation.hpp"
#include "parallel/squares.hpp"

namespace dtrain::train {

TrainingStep::TrainingStep(const Parts& parts, std::uint64_t seed, double grad_clip)
    : parts_(parts),
      counted_parts_(counted_parts()),
      seed_(seed),
      grad_clip_(grad_clip),
      scaler_(parts.half == at::kHalf ? LossScaler::Use::dynamic : LossScaler::Use::none) {}

/// What this rank vouches for, less what another rank of its tensor group holds and counts as well.
std::vector<Range> TrainingStep::counted_parts() const {
  if (parts_.counts_common) return parts_.gradients.own_parts();
  std::vector<Range> counted;
  for (const auto& entry : parts_.parameters.entries()) {
    if (entry.parameter->slice == nullptr) continue;
    for (const auto& part : parts_.gradients.own_parts()) {
      const Range common{std::max(part.begin, entry.offset), std::min(part.end, entry.offset + entry.count)};
      if (common.size() > 0) counted.push_back(common);
    }
  }
  return counted;
}

const parallel::Schedule& TrainingStep::schedule_for(std::size_t micro_batches) {
  auto place = schedules_.find(micro_batches);
  if (place == schedules_.end()) {
    auto schedule = parallel::make_schedule(parts_.pipelining, parts_.pipeline.ranks(),
                                            parts_.stages_per_rank, static_cast<int>(micro_batches));
    parallel::simulate(schedule);  // proved to come to its end before it runs
    place = schedules_.emplace(micro_batches, std::move(schedule)).first;
  }
  return place->second;
}

models::LossSums TrainingStep::loss_of(const models::Tensors& outputs, const at::Tensor& targets) const {
  return parts_.model.training_loss(models::in_full(outputs), targets, parts_.training_loss);
}

void TrainingStep::begin(const StepPlan& plan) {
  parts_.gradients.begin_step(static_cast<int>(plan.micro_batches.size()));
  parts_.statistics.begin_step();
  parts_.tied.begin_step();
  if (parts_.totals != nullptr) parts_.totals->begin_step();
  losses_.clear();
}

void TrainingStep::compute(const StepPlan& plan, parallel::SampleSource& samples) {
  begin(plan);
  if (parts_.rows != nullptr) return compute_by_rows(plan, samples);
  if (parts_.graphs != nullptr && replay(plan, samples)) return;
  give(plan, [&](std::size_t m) { return samples.take(plan, m); });
}

// The rows that the step uses must be current before the first micro-batch: all are read first.
void TrainingStep::compute_by_rows(const StepPlan& plan, parallel::SampleSource& samples) {
  std::vector<Samples> all;
  const auto& table = dynamic_cast<const models::EmbeddingBag&>(*parts_.model.layers().front());
  std::vector<at::Tensor> ids;
  for (std::size_t i = 0; i < plan.micro_batches.size(); ++i) {
    all.push_back(samples.take(plan, i));
    all.back().inputs = {table.ids_read(all.back().inputs.at(0))};
    ids.push_back(all.back().inputs.front());
  }
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "make rows current");
    parts_.rows->begin_step(ids);
  }
  give(plan, [&](std::size_t m) { return std::move(all[m]); });
  const ScopedSpan span(parts_.sink, Phase::optimizer, "add rows up");
  parts_.rows->finish();
}

/// False: the step is still to be given to the device.
bool TrainingStep::replay(const StepPlan& plan, parallel::SampleSource& samples) {
  const StepGraphs::Step how{.plan = plan,
                             .samples = samples,
                             .give = [&](const SamplesOf& samples_of) { give(plan, samples_of); },
                             .begin_anew = [&] { begin(plan); }};
  return parts_.graphs->run(scaler_.scale(), how, losses_);
}

void TrainingStep::give(const StepPlan& plan, const SamplesOf& samples_of) {
  std::vector<std::int64_t> samples;
  for (const auto& micro_batch : plan.micro_batches) samples.push_back(micro_batch.samples());
  const auto index_of = [&](int m) {
    return static_cast<int>(plan.micro_batches[static_cast<std::size_t>(m)].index);
  };
  at::Tensor targets;  // of the micro-batch that came in last, where the first rank is the last one too
  const bool one_rank = parts_.pipeline.is_first() && parts_.pipeline.is_last();
  const bool wrong_mask = planted(Fault::wrong_mask) && parts_.world.rank() > 0;
  const auto replayed_step = parts_.graphs != nullptr ? parts_.graphs->replayed_step() : at::Tensor();
  const parallel::Pipeline::Training work{
      .context =
          [&](int m) {
            return models::Context{
                .mode = models::Mode::training,
                .seed = seed_,
                .step = static_cast<std::uint32_t>(plan.number),
                .micro_batch = static_cast<std::uint32_t>(index_of(m)) + (wrong_mask ? 1U : 0U),
                .half = parts_.half,
                .kernels = parts_.kernels,
                .replayed_step = replayed_step};
          },
      .inputs =
          [&](int m) {
            auto read_now = samples_of(static_cast<std::size_t>(m));
            targets = std::move(read_now.targets);
            return std::move(read_now.inputs);
          },
      .loss =
          [&](int m, const models::Tensors& outputs) {
            if (!one_rank) targets = samples_of(static_cast<std::size_t>(m)).targets;
            auto sums = loss_of(outputs, targets);
            if (parts_.injection != nullptr && parts_.injection->spoils_loss()) {
              sums.loss = sums.loss * std::numeric_limits<double>::quiet_NaN();
            }
            losses_.push_back(
                {static_cast<std::uint32_t>(index_of(m)), sums, samples[static_cast<std::size_t>(m)]});
            losses_.back().sums.loss = sums.loss.detach();
            return scaled(sums.loss);
          },
      .taken_back = [&](int m) { parts_.gradients.taken_back(index_of(m)); }};
  parts_.pipeline.train(schedule_for(plan.micro_batches.size()), samples, work);
}

at::Tensor TrainingStep::scaled(const at::Tensor& loss) const {
  if (parts_.half != at::kHalf) return loss;
  const auto on_device = parts_.graphs != nullptr ? parts_.graphs->replayed_loss_scale() : at::Tensor();
  return on_device.defined() ? loss * on_device : loss * scaler_.scale();
}

StepOutcome TrainingStep::run(const StepPlan& plan, parallel::SampleSource& samples) {
  StepOutcome outcome;
  compute(plan, samples);
  outcome.own.micro_batches += static_cast<double>(losses_.size());
  const bool reads = parts_.pipeline.is_first() || parts_.pipeline.is_last();
  const bool waits_for_device = !parts_.parameters.values().is_cpu();
  if (plan.another_follows && reads && waits_for_device) samples.read_ahead();
  parts_.gradients.finish([this] { parts_.tied.exchange_gradients(); });
  parts_.statistics.exchange();

  for (const auto& [index, sums, count] : parallel::on_cpu(losses_)) {
    outcome.own.add(sums, count);
    if (parts_.totals != nullptr && parts_.counts_common) {
      parts_.totals->add_micro_batch(static_cast<int>(index), sums.loss.item<double>(), sums.weight);
    }
  }
  if (!parts_.counts_common) outcome.own.leave_samples_out();
  measure_gradient(outcome.own);
  const auto agreed =
      parts_.control.agree(outcome.own, parts_.requests ? parts_.requests() : parallel::StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  if (parts_.totals != nullptr) parts_.totals->complete(outcome.total);
  const auto& total = outcome.total;
  const double loss_scale = scaler_.scale();
  const bool finite = total.non_finite == 0 && std::isfinite(total.loss);
  scaler_.keep(plan.number);
  outcome.left_out = scaler_.leaves_out(finite);
  if (!finite && !outcome.left_out) report_non_finite(plan.number, total);

  if (parts_.undo != nullptr) {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "keep");
    parts_.undo->keep(plan.number);
  }
  outcome.gradient_norm = std::sqrt(total.gradient_squares) / (total.weight * loss_scale);
  const double scale =
      optim::clip_coefficient(outcome.gradient_norm, grad_clip_) / (total.weight * loss_scale);
  if (!outcome.left_out) {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
    const auto number = scaler_.updates(plan.number);
    parts_.optimizer.step(parts_.parameters.values(), parts_.gradients.gradients(), scale, plan.learning_rate,
                          number, parts_.gradients.update_parts());
    if (parts_.rows != nullptr) parts_.rows->update(scale, plan.learning_rate, number);
  }
  if (!outcome.left_out) parts_.statistics.apply();
  if (parts_.gradients.updates_parts()) parts_.data.barrier().wait();  // now all parts are new
  parts_.tied.exchange_values();
  if (!std::isfinite(total.loss)) {
    outcome.own.leave_losses_out();
    outcome.total.leave_losses_out();
  }
  return outcome;
}

void TrainingStep::measure_gradient(parallel::StepTotals& own) const {
  const ScopedSpan span(parts_.sink, Phase::optimizer, "norm");
  if (parts_.rows != nullptr && parts_.counts_common) {
    const auto squares = parts_.rows->squares();
    own.gradient_squares += squares.sum;
    own.non_finite += static_cast<double>(squares.non_finite);
  }
  if (parts_.totals != nullptr) {
    own.non_finite += static_cast<double>(parts_.totals->add_gradients(parts_.gradients.gradients()));
    return;
  }
  for (const auto& squares : parallel::squares_of(parts_.gradients.gradients(), counted_parts_)) {
    own.gradient_squares += squares.sum;
    own.non_finite += static_cast<double>(squares.non_finite);
  }
}

/// Where in the model the last parameter stands in which this rank finds such a number in its parts of the
/// gradient: the one nearest to the loss. -1: there is none.
std::int64_t TrainingStep::last_non_finite() const {
  std::int64_t position = 0;
  std::int64_t found = -1;
  for (const auto& layer : parts_.model.layers()) {
    for (const auto& parameter : layer->parameters()) {
      if (holds_non_finite(parameter)) found = position;
      ++position;
    }
  }
  return found;
}

bool TrainingStep::holds_non_finite(const models::Parameter& parameter) const {
  if (parameter.rows != nullptr) return parts_.rows->squares().non_finite > 0;
  const auto& entries = parts_.parameters.entries();
  const auto entry = std::ranges::find(entries, &parameter, &parallel::FlatParameters::Entry::parameter);
  if (entry == entries.end()) return false;
  return std::ranges::any_of(parts_.gradients.own_parts(), [&](const Range& part) {
    const auto begin = std::max(part.begin, entry->offset);
    const auto end = std::min(part.end, entry->offset + entry->count);
    return begin < end &&
           parallel::squares_of(parts_.gradients.gradients().narrow(0, begin, end - begin)).non_finite > 0;
  });
}

void TrainingStep::report_non_finite(std::int64_t step, const parallel::StepTotals& total) const {
  auto last = last_non_finite();
  parts_.world.all_reduce(comm::Buffer::of(std::span(&last, 1)), comm::ReduceOp::max).wait();
  std::string subject = fmt::format("step {}", step);
  std::int64_t position = 0;
  for (const auto& layer : parts_.model.layers()) {
    for (const auto& parameter : layer->parameters()) {
      if (position++ == last) subject += ", " + parameter.name;
    }
  }
  throw Error(
      total.non_finite > 0 ? "the gradient is not finite" : "the loss is not finite",
      {.subject = subject, .advice = "lower --learning-rate, or limit the gradient with --grad-clip"});
}

}  // namespace dtrain::train
