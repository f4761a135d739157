#include "train/loop/evaluation.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "models/compute/precision.hpp"
#include "plan/memory_estimate.hpp"

namespace dtrain::train {
namespace {

// Chosen without being asked for. Larger batches are hardly faster.
constexpr std::int64_t kMostSamples = 256;
constexpr double kLittleMemory = 128.0 * 1024 * 1024;

/// The sums over all ranks. Collective, unless there are none.
std::vector<double> summed(std::vector<double> own, comm::Group& group) {
  if (!own.empty()) group.all_reduce(comm::Buffer::of(std::span(own)), comm::ReduceOp::sum).wait();
  return own;
}

}  // namespace

Scores scores_of(const parallel::StepTotals& sums, std::int64_t samples, Scoring scoring) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (sums.weight == 0) return {.loss = nan, .accuracy = nan, .samples = samples};
  return {.loss = sums.loss / sums.weight,
          .accuracy = scoring == Scoring::loss_and_accuracy ? sums.correct / sums.counted : nan,
          .samples = samples};
}

std::int64_t evaluation_batch(const RunConfig& config, double sample_bytes, double held_bytes) {
  const auto limit = static_cast<double>(config.pipeline.memory_limit_bytes());
  if (config.batch.evaluation > 0) {
    const double wanted = sample_bytes * config.batch.evaluation;
    require(limit == 0 || wanted + held_bytes <= limit,
            fmt::format("the activations of {} samples take {:.0f} bytes, and what training holds {:.0f}",
                        config.batch.evaluation, wanted, held_bytes),
            {.subject = fmt::format("--eval-batch {}", config.batch.evaluation),
             .advice = fmt::format("use fewer, or allow more with --memory-limit, {} now",
                                   config.pipeline.memory_limit),
             .code = ExitCode::usage});
    return config.batch.evaluation;
  }
  const auto piece = std::min<std::int64_t>(kMostSamples, samples_of_largest_piece(config.batch));
  const auto as_usual =
      std::clamp(static_cast<std::int64_t>(kLittleMemory / sample_bytes), piece, kMostSamples);
  if (limit == 0) return as_usual;
  if (config.mesh_shape.tensor > 1) return piece;  // slices differ, and all ranks take as many
  const double room = limit / (1 + plan::kEstimateError) - held_bytes;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(room / sample_bytes), 1, as_usual);
}

Evaluation::Evaluation(const Parts& parts, data::Loader loader, std::int64_t samples, std::int64_t batch)
    : parts_(parts), loader_(std::move(loader)), samples_(samples), batch_(batch), control_(parts.world) {}

std::vector<data::PieceRequest> Evaluation::requests() const {
  const auto mine = part_of(samples_, parts_.data.rank(), parts_.data.size());
  std::vector<data::PieceRequest> requests;
  for (auto first = mine.begin; first < mine.end; first += batch_) {
    data::PieceRequest request{.step = first};
    request.samples.resize(static_cast<std::size_t>(std::min(batch_, mine.end - first)));
    std::iota(request.samples.begin(), request.samples.end(), first);
    requests.push_back(std::move(request));
  }
  return requests;
}

int Evaluation::most_batches() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < parts_.data.size(); ++rank) {
    const auto samples = part_of(samples_, rank, parts_.data.size()).size();
    most = std::max(most, (samples + batch_ - 1) / batch_);
  }
  return static_cast<int>(most);
}

// Once over this data rank's samples; `take` is called on the last rank of the pipeline.
void Evaluation::pass(const models::Context& context, bool wants_codes, const Take& take) {
  auto pieces = requests();
  std::vector<std::int64_t> samples;
  for (const auto& piece : pieces) samples.push_back(static_cast<std::int64_t>(piece.samples.size()));
  auto& pipeline = parts_.pipeline;
  const bool one_rank = pipeline.is_first() && pipeline.is_last();
  if (pipeline.is_first() || pipeline.is_last()) loader_.start(std::move(pieces));

  data::Batch batch;  // that is at the last layer, where the first rank is the last one too
  models::Tensors inputs;
  const auto read = [&] {
    batch = loader_.next();
    inputs = parts_.preparation.inputs(batch);
  };
  const parallel::Pipeline::Evaluation work{
      .context = context,
      .inputs =
          [&](int) {
            read();
            return inputs;
          },
      .outputs =
          [&](int, const models::Tensors& outputs, const at::Tensor& codes) {
            if (!one_rank) read();
            const auto targets = targets_of(parts_.model, parts_.preparation, batch, inputs);
            take({.batch = batch,
                  .targets = targets,
                  .outputs = models::in_full(outputs),
                  .codes = models::in_full(codes)});
          },
      .code_layer = wants_codes ? parts_.model.code_layer() : std::nullopt,
      .most = most_batches()};
  const auto schedule = parallel::make_forward_schedule(pipeline.ranks(), parts_.stages_per_rank,
                                                        static_cast<int>(samples.size()));
  pipeline.evaluate(schedule, samples, work);
}

EvaluationResult Evaluation::run(const OutputSink& sink) {
  const double start_s = steady_s();
  const at::NoGradGuard no_grad;
  auto& model = parts_.model;
  parallel::StepTotals own;
  const auto columns = model.extra_columns();
  std::vector<double> extra(columns.sums);
  const auto add_extra = [&](const BatchOutputs& batch, models::Feedback words) {
    if (extra.empty()) return;
    const auto added = model.extra_sums(batch.outputs, batch.targets, words);
    for (std::size_t k = 0; k < extra.size(); ++k) extra[k] += added.at(k);
  };
  const auto feedback = model.extra_feedback();
  models::Context context{.mode = models::Mode::evaluation, .half = parts_.half, .kernels = parts_.kernels};
  pass(context, static_cast<bool>(sink), [&](const BatchOutputs& batch) {
    own.add(model.loss(batch.outputs, batch.targets), static_cast<std::int64_t>(batch.batch.samples.size()));
    if (sink) sink(batch);
    add_extra(batch, models::Feedback::targets);
  });
  if (feedback) {
    context.feedback = *feedback;
    pass(context, false, [&](const BatchOutputs& batch) { add_extra(batch, *feedback); });
  }
  if (!parts_.counts_common) {
    own.leave_samples_out();
    std::ranges::fill(extra, 0.0);
  }
  const auto all = scores_of(control_.agree(own).totals, samples_, parts_.scoring);
  const auto sums = summed(std::move(extra), parts_.world);
  auto values = model.extra_values(sums, all.loss);
  for (std::size_t k = 0; k < values.size(); ++k)
    if (const int target = columns.columns[k].target; target >= 0)
      values[k] *= parts_.preparation.target_scale(static_cast<std::size_t>(target));
  const auto cells = columns.confusion_classes * columns.confusion_classes;
  return {.own = scores_of(own, static_cast<std::int64_t>(own.samples), parts_.scoring),
          .total = all,
          .extra = std::move(values),
          .confusion = std::vector<std::int64_t>(sums.end() - cells, sums.end()),
          .time_s = steady_s() - start_s};
}

}  // namespace dtrain::train
