#include "train/loop/site_scores.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <string>

namespace dtrain::train {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kNumbers = sizeof(ScoredSample) / sizeof(double);

double f1_of(std::span<const ScoredSample> samples) {
  double found = 0;
  double wrong = 0;
  for (const auto& sample : samples) {
    if (sample.target == 1 && sample.predicted == 1) found += 1;
    if (sample.target != sample.predicted) wrong += 1;
  }
  return found + wrong > 0 ? 2 * found / (2 * found + wrong) : kUnknown;
}

}  // namespace

double area_under_curve(std::span<const ScoredSample> samples) {
  std::vector<ScoredSample> ordered(samples.begin(), samples.end());
  std::ranges::sort(ordered, {}, &ScoredSample::score);
  double ranks = 0;  // of class 1, from 1; equal scores share theirs
  double positive = 0;
  for (std::size_t begin = 0, end = 0; begin < ordered.size(); begin = end) {
    double here = 0;
    for (; end < ordered.size() && ordered[end].score == ordered[begin].score; ++end)
      here += ordered[end].target;
    ranks += here * static_cast<double>(begin + 1 + end) / 2;
    positive += here;
  }
  const double negative = static_cast<double>(ordered.size()) - positive;
  if (positive == 0 || negative == 0) return kUnknown;
  return (ranks - positive * (positive + 1) / 2) / (positive * negative);
}

SiteScore score_of(std::span<const ScoredSample> samples, int classes) {
  if (samples.empty()) return {.loss = kUnknown, .accuracy = kUnknown, .f1 = kUnknown, .auc = kUnknown};
  const auto count = static_cast<double>(samples.size());
  SiteScore score{.samples = std::ssize(samples)};
  for (const auto& sample : samples) {
    score.loss += sample.loss / count;
    if (sample.target == sample.predicted) score.accuracy += 1 / count;
  }
  score.f1 = classes == 2 ? f1_of(samples) : kUnknown;
  score.auc = classes == 2 ? area_under_curve(samples) : kUnknown;
  return score;
}

bool SiteScores::has(const Workload& workload) {
  const auto& info = workload.dataset.info();
  const auto& model = *workload.model;
  return !info.sites.empty() && !info.classes.empty() && info.target_shape.empty() &&
         model.goal() == models::Goal::target && model.has_cross_entropy();
}

SiteScores::SiteScores(const Workload& workload, const std::string& split)
    : sites_of_(workload.dataset.sites(split)),
      sites_(static_cast<int>(workload.dataset.info().sites.size())),
      classes_(static_cast<int>(workload.dataset.info().classes.size())),
      samples_(sites_of_.size()) {}

OutputSink SiteScores::sink() {
  return [this](const BatchOutputs& batch) { add(batch); };
}

void SiteScores::add(const BatchOutputs& batch) {
  const auto logits = batch.outputs.at(0).to(at::kCPU, at::kDouble);
  const auto targets = batch.targets.to(at::kCPU).contiguous();
  const auto losses = at::cross_entropy_loss(logits, targets, {}, at::Reduction::None).contiguous();
  const auto predicted = logits.argmax(1).contiguous();
  const auto scores = (logits.select(1, logits.size(1) - 1) - logits.select(1, 0)).contiguous();
  for (std::size_t i = 0; i < batch.batch.samples.size(); ++i) {
    samples_.at(static_cast<std::size_t>(batch.batch.samples[i])) = {
        .loss = losses.const_data_ptr<double>()[i],
        .target = static_cast<double>(targets.const_data_ptr<std::int64_t>()[i]),
        .predicted = static_cast<double>(predicted.const_data_ptr<std::int64_t>()[i]),
        .score = scores.const_data_ptr<double>()[i]};
  }
}

std::vector<SiteScore> SiteScores::agree(comm::Group& world, bool counts) {
  if (!counts) std::ranges::fill(samples_, ScoredSample{});
  if (!samples_.empty()) {
    // Each sample is not zero on one rank.
    const std::span<double> all(&samples_.front().loss, samples_.size() * kNumbers);
    world.all_reduce(comm::Buffer::of(all), comm::ReduceOp::sum).wait();
  }
  std::vector<SiteScore> scores;
  for (int site = 0; site < sites_; ++site) {
    std::vector<ScoredSample> own;
    for (std::size_t id = 0; id < samples_.size(); ++id) {
      if (sites_of_[id] == site) own.push_back(samples_[id]);
    }
    scores.push_back(score_of(own, classes_));
  }
  return scores;
}

}  // namespace dtrain::train
