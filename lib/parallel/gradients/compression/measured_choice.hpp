#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/encoding.hpp"
#include "comm/group.hpp"
#include "core/clock.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/gradients/compression/rounded_sum.hpp"

namespace dtrain::parallel {

/// In which form a bucket may travel, the plainest first.
struct WireForm {
  std::string_view name;
  std::optional<WireType> type;  ///< Empty: as it is.
};
inline constexpr std::array<WireForm, 3> kWireForms = {
    {{"none", std::nullopt}, {"fp16", WireType::float16}, {"int8", WireType::int8}}};

/// By form, in the order of kWireForms.
using FormSeconds = std::array<double, kWireForms.size()>;

/// The form of a bucket that takes these seconds. Another than the plainest has to be at least a tenth
/// faster.
std::size_t fastest_form(const FormSeconds& seconds);

/// What a choice of forms goes by. Tests have clocks of their own.
struct ChoiceClock {
  std::function<double()> now_s = steady_s;
  /// What rounding and reading back takes this rank, in seconds for a value.
  std::function<double(WireType)> rounding_s = measured_rounding_s;

  /// The shorter of kProbes times that kProbedValues take. Some 10 us in all on a usual core.
  static double measured_rounding_s(WireType type);
  static constexpr std::size_t kProbedValues = 2048;
  static constexpr int kProbes = 2;
};

/// A bucket that travels in one form or another, and is timed.
class MeasuredEncoding final : public comm::Encoding {
 public:
  /// `now_s` is borrowed.
  MeasuredEncoding(std::uint64_t seed, std::uint64_t first, const std::function<double()>& now_s);

  void begin_step(std::int64_t number, std::size_t form);
  /// What its parts took in this step: on a virtual clock, if there is one.
  double seconds() const { return clock_ ? clock_->crossing_s : crossing_s_; }
  /// Of a step in which it travelled as it is: what it would take in each form if messages took as long as
  /// their bytes, which is the least. `rounding_s`: for a value, by form, where no virtual clock says it.
  FormSeconds least_seconds(double plain_s, const FormSeconds& rounding_s) const;
  /// When the last of its parts was there; 0: this rank carried none, or a virtual clock counts.
  double arrived_s() const { return clock_ ? 0 : arrived_s_; }

  std::uint16_t id() const override { return static_cast<std::uint16_t>(200 + form_); }
  bool takes_whole_buffers() const override { return false; }
  std::size_t bytes(std::size_t count) const override;
  std::unique_ptr<comm::MessageRounds> begin(std::span<float> values, std::size_t first, int node,
                                             int nodes) override;
  void crossed(double seconds) override;
  void counted(double seconds, double rounding_s) override;
  bool encodes() const override { return encodings_[form_].has_value(); }

 private:
  struct Counted {
    double crossing_s = 0;
    double rounding_s = 0;  // in another form than the plainest
  };

  const std::function<double()>& now_s_;
  std::array<std::optional<RoundedEncoding>, kWireForms.size()> encodings_;
  std::size_t form_ = 0;
  // Of the step so far.
  std::size_t carried_ = 0;  // values
  double crossing_s_ = 0;
  double arrived_s_ = 0;
  std::optional<Counted> clock_;  // empty: no virtual clock counts
};

/// `auto`: each bucket travels as it is until another form is sure to cost little. After some steps each rank
/// knows what its buckets take as they are, and what rounding takes; a form that cannot be a tenth faster is
/// never used. The others are tried in one step, and a bucket keeps its form if it really was a tenth faster,
/// and if the whole step was faster, too: messages may have been hidden behind computing, which rounding is
/// not. So what is lost is at most a part of one step's messages, and two small sums over the ranks; all go
/// by the slowest rank, and choose the same. After kPeriod steps the choice is made anew.
class MeasuredGradients final : public GradientCompression {
 public:
  static constexpr std::size_t kPlainSteps = 4;  ///< The first of them does not count.
  static constexpr std::size_t kPeriod = 1000;

  explicit MeasuredGradients(std::uint64_t seed, ChoiceClock clock = {})
      : seed_(seed), clock_(std::move(clock)) {}

  void lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
               comm::Group& group) override;
  /// Collective over the group.
  void begin_step(std::int64_t number, std::int64_t samples) override;
  comm::Encoding& of(std::size_t bucket) override { return encodings_.at(bucket); }
  std::string news() override { return std::exchange(news_, {}); }

 private:
  double step_seconds() const;
  void keep_times();
  void choose_trial();
  void judge_trial();
  void tell(const std::vector<double>& seconds);

  std::uint64_t seed_;
  ChoiceClock clock_;
  comm::Group* group_ = nullptr;
  FormSeconds rounding_s_{};  // for a value
  std::deque<MeasuredEncoding> encodings_;
  std::vector<std::int64_t> bytes_;  // by bucket
  std::vector<std::size_t> forms_;   // by bucket
  std::size_t steps_ = 0;
  double begun_s_ = 0;  // the step

  // Of plain steps. The last row is of the whole step, the others are of the buckets.
  std::vector<std::vector<double>> times_;  // this rank's, by step
  std::vector<double> plain_s_;             // the slowest rank's median

  std::vector<std::size_t> told_;  // the forms of the last news
  std::string news_;
};

}  // namespace dtrain::parallel
