#include "train/evaluation.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/clock.hpp"

namespace dtrain::train {
namespace {

/// The sums over all ranks. Collective, unless there are none.
std::vector<double> summed(std::vector<double> own, comm::Group& group) {
  if (!own.empty()) group.all_reduce(comm::Buffer::of(std::span(own)), comm::ReduceOp::sum).wait();
  return own;
}

}  // namespace

void add(parallel::StepShare& share, const models::LossSums& sums, std::int64_t samples) {
  share.loss += sums.loss.item<double>();
  share.weight += sums.weight;
  share.counted += sums.counted > 0 ? sums.counted : sums.weight;
  share.samples += static_cast<double>(samples);
  if (sums.correct.defined()) share.correct += static_cast<double>(sums.correct.item<std::int64_t>());
}

Scores scores_of(const parallel::StepShare& sums, std::int64_t samples, Scoring scoring) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (sums.weight == 0) return {.loss = nan, .accuracy = nan, .samples = samples};
  return {.loss = sums.loss / sums.weight,
          .accuracy = scoring == Scoring::loss_and_accuracy ? sums.correct / sums.counted : nan,
          .samples = samples};
}

bool improves(double loss, double best) { return std::isnan(best) ? !std::isnan(loss) : loss < best; }

Evaluation::Evaluation(models::Model& model, const Preparation& preparation, data::Loader loader,
                       std::int64_t samples, std::int64_t batch, Scoring scoring, comm::Group& group)
    : model_(model),
      preparation_(preparation),
      loader_(std::move(loader)),
      samples_(samples),
      batch_(batch),
      scoring_(scoring),
      group_(group),
      control_(group) {}

EvaluationResult Evaluation::run(const OutputSink& sink) {
  const double start_s = steady_s();
  const at::NoGradGuard no_grad;
  const auto mine = part_of(samples_, group_.rank(), group_.size());
  std::vector<data::PieceRequest> requests;
  for (auto first = mine.begin; first < mine.end; first += batch_) {
    data::PieceRequest request{.step = first};
    request.samples.resize(static_cast<std::size_t>(std::min(batch_, mine.end - first)));
    std::iota(request.samples.begin(), request.samples.end(), first);
    requests.push_back(std::move(request));
  }
  const auto batches = requests.size();
  loader_.start(std::move(requests));

  parallel::StepShare own;
  std::vector<double> extra(model_.extra_columns().sums);
  const models::Context context{.mode = models::Mode::evaluation};
  for (std::size_t i = 0; i < batches; ++i) {
    const auto& batch = loader_.next();
    const auto inputs = preparation_.inputs(batch);
    const auto targets = targets_of(model_, preparation_, batch, inputs);
    auto flowing = inputs;
    at::Tensor codes;
    for (std::size_t layer = 0; layer < model_.layers().size(); ++layer) {
      flowing = model_.layers()[layer]->forward(flowing, context);
      if (sink && layer == model_.code_layer()) codes = flowing.at(0).clone();  // the next may overwrite it
    }
    const auto sums = model_.loss(flowing, targets);
    if (sink) sink({.batch = batch, .targets = targets, .outputs = flowing, .codes = codes});
    add(own, sums, static_cast<std::int64_t>(batch.samples.size()));
    if (extra.empty()) continue;
    const auto added = model_.extra_sums(inputs, flowing, targets);
    for (std::size_t k = 0; k < extra.size(); ++k) extra[k] += added.at(k);
  }
  const auto total = control_.agree(own);
  return {.own = scores_of(own, mine.size(), scoring_),
          .total = scores_of(total, samples_, scoring_),
          .extra = model_.extra_values(summed(std::move(extra), group_)),
          .time_s = steady_s() - start_s};
}

}  // namespace dtrain::train
