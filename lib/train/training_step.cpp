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
#include "train/evaluation.hpp"

namespace dtrain::train {
namespace {

/// The same in the CPU's memory: the device is waited for once.
std::vector<MicroBatchLoss> read(std::vector<MicroBatchLoss> losses) {
  if (losses.empty() || losses[0].sums.loss.is_cpu()) return losses;
  std::vector<at::Tensor> numbers;
  for (const auto& [index, sums, samples] : losses) {
    numbers.push_back(sums.loss.to(at::kDouble));
    if (sums.correct.defined()) numbers.push_back(sums.correct.to(at::kDouble));
  }
  const at::Tensor here = at::stack(numbers).cpu();
  std::int64_t next = 0;
  for (auto& [index, sums, samples] : losses) {
    sums.loss = here[next++];
    if (sums.correct.defined()) sums.correct = here[next++].to(at::kLong);
  }
  return losses;
}

}  // namespace

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

Samples TrainingStep::next_samples(data::Loader& loader) {
  if (ahead_.empty()) return read_samples(loader);
  Samples next = std::move(ahead_.front());
  ahead_.pop_front();
  return next;
}

Samples TrainingStep::read_samples(data::Loader& loader) const {
  data::Batch batch;
  {
    const ScopedSpan span(parts_.sink, Phase::data, "load");
    batch = loader.next();
  }
  const ScopedSpan span(parts_.sink, Phase::data, "prepare");
  auto inputs = parts_.preparation.training_inputs(batch);
  auto targets = targets_of(parts_.model, parts_.preparation, batch, inputs);
  return {std::move(inputs), std::move(targets)};
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

void TrainingStep::begin(const std::vector<StepPiece>& pieces) {
  parts_.gradients.begin_step(static_cast<int>(pieces.size()));
  parts_.statistics.begin_step();
  parts_.tied.begin_step();
  if (parts_.totals != nullptr) parts_.totals->begin_step();
  losses_.clear();
}

void TrainingStep::compute(std::int64_t step, const std::vector<StepPiece>& pieces, data::Loader& loader) {
  begin(pieces);
  if (parts_.rows != nullptr) return compute_by_rows(step, pieces, loader);
  if (parts_.graphs != nullptr && replay(step, pieces, loader)) return;
  give(step, pieces, [&](std::size_t /*m*/) { return next_samples(loader); });
}

// The rows that the step uses must be current before the first micro-batch: all are read first.
void TrainingStep::compute_by_rows(std::int64_t step, const std::vector<StepPiece>& pieces,
                                   data::Loader& loader) {
  std::vector<Samples> all;
  const auto& table = dynamic_cast<const models::EmbeddingBag&>(*parts_.model.layers().front());
  std::vector<at::Tensor> ids;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    all.push_back(next_samples(loader));
    all.back().inputs = {table.ids_read(all.back().inputs.at(0))};
    ids.push_back(all.back().inputs.front());
  }
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "make rows current");
    parts_.rows->begin_step(ids);
  }
  give(step, pieces, [&](std::size_t m) { return std::move(all[m]); });
  const ScopedSpan span(parts_.sink, Phase::optimizer, "add rows up");
  parts_.rows->finish();
}

/// False: the step is still to be given to the device.
bool TrainingStep::replay(std::int64_t step, const std::vector<StepPiece>& pieces, data::Loader& loader) {
  const StepGraphs::Step how{.next_samples = [&] { return next_samples(loader); },
                             .look_ahead =
                                 [&](std::size_t count) {
                                   while (ahead_.size() < count) ahead_.push_back(read_samples(loader));
                                   return std::vector<Samples>(ahead_.begin(), ahead_.end());
                                 },
                             .give = [&](const SamplesOf& samples_of) { give(step, pieces, samples_of); },
                             .begin_anew = [&] { begin(pieces); }};
  return parts_.graphs->run(step, scaler_.scale(), pieces, how, losses_);
}

void TrainingStep::give(std::int64_t step, const std::vector<StepPiece>& pieces,
                        const SamplesOf& samples_of) {
  std::vector<std::int64_t> samples;
  for (const StepPiece& piece : pieces) samples.push_back(piece.samples);
  const auto index_of = [&](int m) {
    return static_cast<int>(pieces[static_cast<std::size_t>(m)].micro_batch);
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
                .step = static_cast<std::uint32_t>(step),
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
  parts_.pipeline.train(schedule_for(pieces.size()), samples, work);
}

at::Tensor TrainingStep::scaled(const at::Tensor& loss) const {
  if (parts_.half != at::kHalf) return loss;
  const auto on_device = parts_.graphs != nullptr ? parts_.graphs->replayed_loss_scale() : at::Tensor();
  return on_device.defined() ? loss * on_device : loss * scaler_.scale();
}

StepOutcome TrainingStep::run(std::int64_t step, const std::vector<StepPiece>& pieces, data::Loader& loader,
                              double learning_rate, bool another_follows) {
  StepOutcome outcome;
  compute(step, pieces, loader);
  outcome.own.micro_batches += static_cast<double>(losses_.size());
  const bool reads = parts_.pipeline.is_first() || parts_.pipeline.is_last();
  const bool waits_for_device = !parts_.parameters.values().is_cpu();
  if (another_follows && reads && waits_for_device) ahead_.push_back(read_samples(loader));
  parts_.gradients.finish([this] { parts_.tied.exchange_gradients(); });
  parts_.statistics.exchange();

  for (const auto& [index, sums, samples] : read(losses_)) {
    add(outcome.own, sums, samples);
    if (parts_.totals != nullptr && parts_.counts_common) {
      parts_.totals->add_micro_batch(static_cast<int>(index), sums.loss.item<double>(), sums.weight);
    }
  }
  if (!parts_.counts_common) outcome.own.leave_samples_out();
  measure_gradient(outcome.own);
  if (parts_.ask) parts_.ask(outcome.own);
  outcome.total = parts_.control.agree(outcome.own);
  if (parts_.totals != nullptr) parts_.totals->complete(outcome.total);
  const auto& total = outcome.total;
  const double loss_scale = scaler_.scale();
  const bool finite = total.non_finite == 0 && std::isfinite(total.loss);
  scaler_.keep(step);
  outcome.left_out = scaler_.leaves_out(finite);
  if (!finite && !outcome.left_out) report_non_finite(step, total);

  if (parts_.undo != nullptr) {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "keep");
    parts_.undo->keep(step);
  }
  outcome.gradient_norm = std::sqrt(total.gradient_squares) / (total.weight * loss_scale);
  const double scale =
      optim::clip_coefficient(outcome.gradient_norm, grad_clip_) / (total.weight * loss_scale);
  if (!outcome.left_out) {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
    const auto number = scaler_.updates(step);
    parts_.optimizer.step(parts_.parameters.values(), parts_.gradients.gradients(), scale, learning_rate,
                          number, parts_.gradients.update_parts());
    if (parts_.rows != nullptr) parts_.rows->update(scale, learning_rate, number);
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

void TrainingStep::measure_gradient(parallel::StepShare& own) const {
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

void TrainingStep::report_non_finite(std::int64_t step, const parallel::StepShare& total) const {
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
