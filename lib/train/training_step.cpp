#include "train/training_step.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.hpp"
#include "kernels/reduce.hpp"
#include "optim/schedule.hpp"
#include "train/evaluation.hpp"

namespace dtrain::train {
namespace {

kernels::SumOfSquares squares_of(const at::Tensor& values) {
  const auto n = static_cast<std::size_t>(values.numel());
  if (values.scalar_type() == at::kDouble) {
    return kernels::sum_of_squares_and_nonfinite(values.const_data_ptr<double>(), n);
  }
  return kernels::sum_of_squares_and_nonfinite(values.const_data_ptr<float>(), n);
}

}  // namespace

TrainingStep::TrainingStep(const Parts& parts, std::uint64_t seed, double grad_clip)
    : parts_(parts), walk_(parts.model), seed_(seed), grad_clip_(grad_clip) {}

TrainingStep::Piece TrainingStep::next_piece(data::Loader& loader) const {
  const data::Batch* batch = nullptr;
  {
    const ScopedSpan span(parts_.sink, Phase::data, "load");
    batch = &loader.next();
  }
  const ScopedSpan span(parts_.sink, Phase::data, "prepare");
  auto inputs = parts_.preparation.training_inputs(*batch);
  auto targets = targets_of(parts_.model, parts_.preparation, *batch, inputs);
  return {static_cast<std::uint32_t>(batch->micro_batch), static_cast<std::int64_t>(batch->samples.size()),
          std::move(inputs), std::move(targets)};
}

void TrainingStep::compute_piece(Piece piece, std::int64_t step, parallel::StepShare& own) {
  models::LossSums sums;
  {
    const ScopedSpan span(parts_.sink, Phase::forward, "forward");
    const models::Context context{.mode = models::Mode::training,
                                  .seed = seed_,
                                  .step = static_cast<std::uint32_t>(step),
                                  .micro_batch = piece.micro_batch};
    const auto outputs = walk_.forward(std::move(piece.inputs), context);
    const auto& weights = parts_.class_weights;
    sums = weights.defined() ? parts_.model.weighted_loss(outputs, piece.targets, weights)
                             : parts_.model.loss(outputs, piece.targets);
    add(own, sums, piece.samples);
    ++own.micro_batches;
  }
  const ScopedSpan span(parts_.sink, Phase::backward, "backward");
  parts_.buckets.begin_backward();
  walk_.backward(sums.loss);
}

// The rows that the step uses must be current before the first piece: all pieces are read first.
void TrainingStep::compute_by_rows(std::int64_t step, int pieces, data::Loader& loader,
                                   parallel::StepShare& own) {
  const auto& table = dynamic_cast<const models::EmbeddingBag&>(*parts_.model.layers().front());
  std::vector<Piece> all;
  std::vector<at::Tensor> ids;
  for (int i = 0; i < pieces; ++i) {
    all.push_back(next_piece(loader));
    all.back().inputs = {table.ids_read(all.back().inputs.at(0)).clone()};  // the loader's memory is borrowed
    all.back().targets = all.back().targets.clone();
    ids.push_back(all.back().inputs.front());
  }
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "make rows current");
    parts_.rows->begin_step(ids);
  }
  for (Piece& piece : all) compute_piece(std::move(piece), step, own);
  const ScopedSpan span(parts_.sink, Phase::optimizer, "add rows up");
  parts_.rows->finish();
}

StepOutcome TrainingStep::run(std::int64_t step, int pieces, data::Loader& loader, double learning_rate) {
  StepOutcome outcome;
  parts_.buckets.begin_step(pieces);
  parts_.statistics.begin_step();
  if (parts_.rows != nullptr) {
    compute_by_rows(step, pieces, loader, outcome.own);
  } else {
    for (int i = 0; i < pieces; ++i) compute_piece(next_piece(loader), step, outcome.own);
  }
  parts_.buckets.finish();
  parts_.statistics.exchange();

  measure_gradient(outcome.own);
  outcome.total = parts_.control.agree(outcome.own);
  const auto& total = outcome.total;
  if (total.non_finite > 0 || !std::isfinite(total.loss)) report_non_finite(step, total);

  outcome.gradient_norm = std::sqrt(total.gradient_squares) / total.weight;
  const double scale = optim::clip_coefficient(outcome.gradient_norm, grad_clip_) / total.weight;
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
    parts_.optimizer.step(parts_.parameters.values(), parts_.buckets.gradients(), scale, learning_rate, step,
                          parts_.buckets.update_parts());
    if (parts_.rows != nullptr) parts_.rows->update(scale, learning_rate, step);
  }
  parts_.statistics.apply();
  if (parts_.buckets.updates_parts()) parts_.group.barrier().wait();  // now all parts are new
  return outcome;
}

void TrainingStep::measure_gradient(parallel::StepShare& own) const {
  const ScopedSpan span(parts_.sink, Phase::optimizer, "norm");
  if (parts_.rows != nullptr) {
    const auto squares = parts_.rows->squares();
    own.gradient_squares += squares.sum;
    own.non_finite += static_cast<double>(squares.non_finite);
  }
  for (const auto& part : parts_.buckets.own_parts()) {
    const auto squares = squares_of(parts_.buckets.gradients().narrow(0, part.begin, part.size()));
    own.gradient_squares += squares.sum;
    own.non_finite += static_cast<double>(squares.non_finite);
  }
}

void TrainingStep::report_non_finite(std::int64_t step, const parallel::StepShare& total) const {
  // The first parameter in which any rank finds one in its parts of the gradient.
  const auto& entries = parts_.parameters.entries();
  auto first = static_cast<std::int64_t>(entries.size());
  if (parts_.rows != nullptr && parts_.rows->squares().non_finite > 0)
    first -= 1;  // the first layer's is last
  for (const auto& part : parts_.buckets.own_parts()) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto begin = std::max(part.begin, entries[i].offset);
      const auto end = std::min(part.end, entries[i].offset + entries[i].count);
      if (begin >= end ||
          squares_of(parts_.buckets.gradients().narrow(0, begin, end - begin)).non_finite == 0)
        continue;
      first = std::min(first, static_cast<std::int64_t>(i));
    }
  }
  parts_.group.all_reduce(comm::Buffer::of(std::span(&first, 1)), comm::ReduceOp::min).wait();
  std::string subject = fmt::format("step {}", step);
  if (first < static_cast<std::int64_t>(entries.size())) {
    subject += ", " + entries[static_cast<std::size_t>(first)].parameter->name;
  }
  throw Error(
      total.non_finite > 0 ? "the gradient is not finite" : "the loss is not finite",
      {.subject = subject, .advice = "lower --learning-rate, or limit the gradient with --grad-clip"});
}

}  // namespace dtrain::train
