#include "parallel/gradients/compression/measured_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "core/median.hpp"

namespace dtrain::parallel {
namespace {

// Less may be chance.
constexpr double kMostOfPlainTime = 0.9;   // of a bucket
constexpr double kMostOfPlainStep = 0.99;  // of all, with computing

}  // namespace

std::size_t fastest_form(const FormSeconds& seconds) {
  std::size_t fastest = 0;
  for (std::size_t form = 1; form < seconds.size(); ++form) {
    const double limit = fastest == 0 ? kMostOfPlainTime * seconds[0] : seconds[fastest];
    if (seconds[form] < limit) fastest = form;
  }
  return fastest;
}

double ChoiceClock::measured_rounding_s(WireType type) {
  const BlockCodec codec(type);
  std::vector<float> values(kProbedValues, 1.0F);
  std::vector<std::byte> message(codec.bytes(values.size()));
  double shortest = 0;
  for (int probe = 0; probe < kProbes; ++probe) {
    const double begun = steady_s();
    codec.encode(values, message, {}, 0);
    codec.add(message, 1, values);
    codec.decode(message, values);
    const double taken = steady_s() - begun;
    shortest = probe == 0 ? taken : std::min(shortest, taken);
  }
  return shortest / static_cast<double>(kProbedValues);
}

MeasuredEncoding::MeasuredEncoding(std::uint64_t seed, std::uint64_t first,
                                   const std::function<double()>& now_s)
    : now_s_(now_s) {
  for (std::size_t form = 0; form < kWireForms.size(); ++form) {
    if (kWireForms[form].type) encodings_[form].emplace(*kWireForms[form].type, seed, first);
  }
}

void MeasuredEncoding::begin_step(std::int64_t number, std::size_t form) {
  carried_ = 0;
  crossing_s_ = arrived_s_ = 0;
  clock_.reset();
  form_ = form;
  if (encodings_[form]) encodings_[form]->begin_step(number);
}

FormSeconds MeasuredEncoding::least_seconds(double plain_s, const FormSeconds& rounding_s) const {
  constexpr std::size_t kMany = 1U << 20U;
  FormSeconds all{plain_s};
  for (std::size_t form = 1; form < all.size(); ++form) {
    const double share = static_cast<double>(encodings_[form]->bytes(kMany)) / (kMany * sizeof(float));
    const double rounding = clock_ ? clock_->rounding_s : static_cast<double>(carried_) * rounding_s[form];
    all[form] = share * plain_s + rounding;
  }
  return all;
}

std::size_t MeasuredEncoding::bytes(std::size_t count) const {
  return encodings_[form_] ? encodings_[form_]->bytes(count) : count * sizeof(float);
}

std::unique_ptr<comm::MessageRounds> MeasuredEncoding::begin(std::span<float> values, std::size_t first,
                                                             int node, int nodes) {
  carried_ += values.size();
  return encodings_[form_] ? encodings_[form_]->begin(values, first, node, nodes) : nullptr;
}

void MeasuredEncoding::crossed(double seconds) {
  crossing_s_ += seconds;
  arrived_s_ = now_s_();
}

void MeasuredEncoding::counted(double seconds, double rounding_s) {
  if (!clock_) clock_.emplace();
  clock_->crossing_s += seconds;
  clock_->rounding_s += rounding_s;
}

void MeasuredGradients::lay_out(const FlatParameters& /*parameters*/, const std::vector<Range>& buckets,
                                comm::Group& group) {
  group_ = &group;
  for (std::size_t form = 1; form < kWireForms.size(); ++form)
    rounding_s_[form] = clock_.rounding_s(*kWireForms[form].type);
  for (const Range& bucket : buckets) {
    encodings_.emplace_back(seed_, static_cast<std::uint64_t>(bucket.begin), clock_.now_s);
    bytes_.push_back(bucket.size() * static_cast<std::int64_t>(sizeof(float)));
  }
  forms_.assign(buckets.size(), 0);
}

void MeasuredGradients::begin_step(std::int64_t number, std::int64_t /*samples*/) {
  const std::size_t at = steps_++ % kPeriod;
  if (at > 1 && at <= kPlainSteps) keep_times();
  if (at == 0) forms_.assign(forms_.size(), 0);
  if (at == kPlainSteps) choose_trial();
  if (at == kPlainSteps + 1) judge_trial();
  for (std::size_t bucket = 0; bucket < encodings_.size(); ++bucket)
    encodings_[bucket].begin_step(number, forms_[bucket]);
  begun_s_ = clock_.now_s();
}

/// Until its last message was there; 0 where a virtual clock counts, on which messages hide behind nothing.
double MeasuredGradients::step_seconds() const {
  double last = begun_s_;
  for (const auto& encoding : encodings_) last = std::max(last, encoding.arrived_s());
  return last - begun_s_;
}

/// Of the step that has ended.
void MeasuredGradients::keep_times() {
  auto& times = times_.emplace_back();
  for (const auto& encoding : encodings_) times.push_back(encoding.seconds());
  times.push_back(step_seconds());
}

void MeasuredGradients::choose_trial() {
  plain_s_.clear();
  for (std::size_t row = 0; row <= encodings_.size(); ++row) {
    std::vector<double> of_row;
    for (const auto& times : times_) of_row.push_back(times[row]);
    plain_s_.push_back(median(std::move(of_row)));
  }
  times_.clear();
  std::vector<double> seconds;  // of each form of each bucket, and of the step
  for (std::size_t bucket = 0; bucket < encodings_.size(); ++bucket) {
    const auto of_bucket = encodings_[bucket].least_seconds(plain_s_[bucket], rounding_s_);
    seconds.insert(seconds.end(), of_bucket.begin(), of_bucket.end());
  }
  seconds.push_back(plain_s_.back());
  group_->all_reduce(comm::Buffer::of(std::span(seconds)), comm::ReduceOp::max).wait();
  for (std::size_t bucket = 0; bucket < encodings_.size(); ++bucket) {
    FormSeconds of_bucket{};
    std::copy_n(&seconds[bucket * of_bucket.size()], of_bucket.size(), of_bucket.begin());
    forms_[bucket] = fastest_form(of_bucket);
    plain_s_[bucket] = of_bucket[0];
  }
  plain_s_.back() = seconds.back();
}

void MeasuredGradients::judge_trial() {
  std::vector<double> seconds;
  if (std::ranges::any_of(forms_, [](std::size_t form) { return form != 0; })) {
    keep_times();
    seconds = std::move(times_.back());
    times_.clear();
    group_->all_reduce(comm::Buffer::of(std::span(seconds)), comm::ReduceOp::max).wait();
    const bool slower = seconds.back() > kMostOfPlainStep * plain_s_.back();
    for (std::size_t bucket = 0; bucket < forms_.size(); ++bucket) {
      if (slower || seconds[bucket] >= kMostOfPlainTime * plain_s_[bucket]) forms_[bucket] = 0;
    }
  }
  if (forms_ != told_) tell(seconds);
  told_ = forms_;
}

/// `seconds`: what the buckets took in their forms; empty: all are as they were.
void MeasuredGradients::tell(const std::vector<double>& seconds) {
  FormSeconds bytes{};
  FormSeconds before{};
  FormSeconds after{};
  for (std::size_t bucket = 0; bucket < forms_.size(); ++bucket) {
    const auto form = forms_[bucket];
    bytes[form] += static_cast<double>(bytes_[bucket]);
    before[form] += plain_s_[bucket];
    if (form > 0) after[form] += seconds[bucket];
  }
  std::vector<std::string> parts;
  for (std::size_t form = 0; form < bytes.size(); ++form) {
    if (bytes[form] == 0) continue;
    parts.push_back(fmt::format("{} for {:.3g} MB", kWireForms[form].name, bytes[form] / 1e6));
    if (form > 0)
      parts.back() += fmt::format(" ({:.4g} ms instead of {:.4g})", 1e3 * after[form], 1e3 * before[form]);
  }
  news_ = fmt::format("between nodes, by what was measured: {}", fmt::join(parts, ", "));
}

}  // namespace dtrain::parallel
