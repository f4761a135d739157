#include "train/loop/site_scores.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace dtrain::train {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kNumbers = sizeof(ScoredSample) / sizeof(double);

double weight_of(const ScoredSample& sample, std::span<const double> weights) {
  return weights.empty() ? 1 : weights[static_cast<std::size_t>(sample.target)];
}

double f1_of(std::span<const ScoredSample> samples, std::span<const double> weights) {
  double found = 0;
  double wrong = 0;
  for (const auto& sample : samples) {
    const double weight = weight_of(sample, weights);
    if (sample.target == 1 && sample.predicted == 1) found += weight;
    if (sample.target != sample.predicted) wrong += weight;
  }
  return found + wrong > 0 ? 2 * found / (2 * found + wrong) : kUnknown;
}

}  // namespace

double area_under_curve(std::span<const ScoredSample> samples) {
  if (std::ranges::any_of(samples, [](const auto& sample) { return std::isnan(sample.score); }))
    return kUnknown;  // they have no order
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

SiteScore score_of(std::span<const ScoredSample> samples, int classes, std::span<const double> weights) {
  SiteScore score;
  double sum = 0;
  for (const auto& sample : samples) {
    const double weight = weight_of(sample, weights);
    sum += weight;
    score.loss += weight * sample.loss;
    if (sample.target == sample.predicted) score.accuracy += weight;
    if (weight > 0) ++score.samples;
  }
  if (sum == 0) return {.loss = kUnknown, .accuracy = kUnknown, .f1 = kUnknown, .auc = kUnknown};
  score.loss /= sum;
  score.accuracy /= sum;
  const bool both = weights.empty() || (classes == 2 && weights[0] > 0 && weights[1] > 0);
  score.f1 = classes == 2 ? f1_of(samples, weights) : kUnknown;
  // How much a class counts changes nothing of how it ranks beside the other.
  score.auc = classes == 2 && both ? area_under_curve(samples) : kUnknown;
  return score;
}

bool SplitScores::has(const Workload& workload) {
  const auto& info = workload.dataset.info();
  const auto& model = *workload.model;
  return !info.classes.empty() && info.target_shape.empty() && model.goal() == models::Goal::target &&
         model.has_cross_entropy();
}

SplitScores::SplitScores(const Workload& workload, const std::string& split)
    : sites_(static_cast<int>(workload.dataset.info().sites.size())),
      classes_(static_cast<int>(workload.dataset.info().classes.size())),
      samples_(static_cast<std::size_t>(workload.dataset.info().samples(split))) {
  if (sites_ > 0) sites_of_ = workload.dataset.sites(split);
}

OutputSink SplitScores::sink() {
  return [this](const BatchOutputs& batch) { add(batch); };
}

void SplitScores::add(const BatchOutputs& batch) {
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

void SplitScores::agree(comm::Group& world, bool counts) {
  if (!counts) clear();
  if (samples_.empty()) return;
  // Each sample is not zero on one rank.
  const std::span<double> all(&samples_.front().loss, samples_.size() * kNumbers);
  world.all_reduce(comm::Buffer::of(all), comm::ReduceOp::sum).wait();
}

SiteScore SplitScores::of_site(int site) const {
  std::vector<ScoredSample> own;
  for (std::size_t id = 0; id < sites_of_.size(); ++id) {
    if (sites_of_[id] == site) own.push_back(samples_[id]);
  }
  return score_of(own, classes_);
}

std::vector<SiteScore> SplitScores::by_site() const {
  std::vector<SiteScore> scores;
  for (int site = 0; site < sites_; ++site) scores.push_back(of_site(site));
  return scores;
}

SiteScore SplitScores::with_classes(std::span<const std::int64_t> shares) const {
  std::vector<double> weights(shares.begin(), shares.end());
  std::vector<double> here(weights.size());
  for (const auto& sample : samples_) here.at(static_cast<std::size_t>(sample.target)) += 1;
  for (std::size_t k = 0; k < weights.size(); ++k) weights[k] = here[k] > 0 ? weights[k] / here[k] : 0;
  return score_of(samples_, classes_, weights);
}

void SplitScores::clear() { std::ranges::fill(samples_, ScoredSample{}); }

}  // namespace dtrain::train
