#include "parallel/gradients/compression/measured_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <utility>

#include "core/median.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kMostOfPlainTime = 0.9;  // of the time without compression: less may be chance

}  // namespace

std::size_t fastest_form(const std::array<double, kWireForms.size()>& seconds) {
  std::size_t fastest = 0;
  for (std::size_t form = 1; form < seconds.size(); ++form) {
    const double limit = fastest == 0 ? kMostOfPlainTime * seconds[0] : seconds[fastest];
    if (seconds[form] < limit) fastest = form;
  }
  return fastest;
}

MeasuredEncoding::MeasuredEncoding(std::uint64_t seed, std::uint64_t first) {
  for (std::size_t form = 0; form < kWireForms.size(); ++form) {
    if (kWireForms[form].type) encodings_[form].emplace(*kWireForms[form].type, seed, first);
  }
}

void MeasuredEncoding::begin_step(std::int64_t number, std::size_t form) {
  step_s_ = 0;
  clock_s_.reset();
  form_ = form;
  if (encodings_[form]) encodings_[form]->begin_step(number);
}

void MeasuredEncoding::record() { seconds_[form_].push_back(clock_s_.value_or(step_s_)); }

double MeasuredEncoding::seconds(std::size_t form) const {
  const auto& all = seconds_[form];
  if (all.size() < 2) return 0;
  return median(std::vector<double>(all.begin() + 1, all.end()));
}

std::size_t MeasuredEncoding::bytes(std::size_t count) const {
  return encodings_[form_] ? encodings_[form_]->bytes(count) : count * sizeof(float);
}

std::unique_ptr<comm::MessageRounds> MeasuredEncoding::begin(std::span<float> values, std::size_t first,
                                                             int node, int nodes) {
  return encodings_[form_] ? encodings_[form_]->begin(values, first, node, nodes) : nullptr;
}

void MeasuredGradients::lay_out(const FlatParameters& /*parameters*/, const std::vector<Range>& buckets,
                                comm::Group& group) {
  group_ = &group;
  for (const Range& bucket : buckets) {
    encodings_.emplace_back(seed_, static_cast<std::uint64_t>(bucket.begin));
    bytes_.push_back(bucket.size() * static_cast<std::int64_t>(sizeof(float)));
  }
}

void MeasuredGradients::begin_step(std::int64_t number) {
  const std::size_t step = steps_++;
  if (chosen_.empty() && step > 0) {
    for (auto& encoding : encodings_) encoding.record();
  }
  if (chosen_.empty() && step == kTrials * kWireForms.size()) choose();
  for (std::size_t bucket = 0; bucket < encodings_.size(); ++bucket)
    encodings_[bucket].begin_step(number, chosen_.empty() ? step % kWireForms.size() : chosen_[bucket]);
}

/// By what the slowest rank has measured, so that all choose the same.
void MeasuredGradients::choose() {
  std::vector<double> seconds;
  for (const auto& encoding : encodings_) {
    for (std::size_t form = 0; form < kWireForms.size(); ++form) seconds.push_back(encoding.seconds(form));
  }
  group_->all_reduce(comm::Buffer::of(std::span(seconds)), comm::ReduceOp::max).wait();
  std::array<std::int64_t, kWireForms.size()> bytes{};
  std::array<double, kWireForms.size()> before{};
  std::array<double, kWireForms.size()> after{};
  for (std::size_t bucket = 0; bucket < encodings_.size(); ++bucket) {
    std::array<double, kWireForms.size()> of_bucket{};
    for (std::size_t form = 0; form < of_bucket.size(); ++form)
      of_bucket[form] = seconds[bucket * of_bucket.size() + form];
    const auto form = fastest_form(of_bucket);
    chosen_.push_back(form);
    bytes[form] += bytes_[bucket];
    before[form] += of_bucket[0];
    after[form] += of_bucket[form];
  }
  std::vector<std::string> parts;
  for (std::size_t form = 0; form < bytes.size(); ++form) {
    if (bytes[form] == 0) continue;
    auto part =
        fmt::format("{} for {:.3g} MB", kWireForms[form].name, static_cast<double>(bytes[form]) / 1e6);
    if (form > 0)
      part += fmt::format(" ({:.4g} ms instead of {:.4g})", 1e3 * after[form], 1e3 * before[form]);
    parts.push_back(std::move(part));
  }
  news_ = fmt::format("between nodes, by what was measured: {}", fmt::join(parts, ", "));
}

}  // namespace dtrain::parallel
