#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/encoding.hpp"
#include "comm/group.hpp"
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

/// The form of a bucket whose parts took these seconds between the nodes, in the order of kWireForms. Another
/// than the plainest has to be at least a tenth faster.
std::size_t fastest_form(const std::array<double, kWireForms.size()>& seconds);

/// A bucket that travels in each form in turn, and is timed.
class MeasuredEncoding final : public comm::Encoding {
 public:
  MeasuredEncoding(std::uint64_t seed, std::uint64_t first);

  void begin_step(std::int64_t number, std::size_t form);
  /// Keeps what the step has taken.
  void record();
  /// What its parts took in each step of a form so far: the median.
  double seconds(std::size_t form) const;

  std::uint16_t id() const override { return static_cast<std::uint16_t>(200 + form_); }
  bool takes_whole_buffers() const override { return false; }
  std::size_t bytes(std::size_t count) const override;
  std::unique_ptr<comm::MessageRounds> begin(std::span<float> values, std::size_t first, int node,
                                             int nodes) override;
  void crossed(double seconds) override { step_s_ += seconds; }
  void counted(double seconds) override { clock_s_ = clock_s_.value_or(0) + seconds; }
  bool encodes() const override { return encodings_[form_].has_value(); }

 private:
  std::array<std::optional<RoundedEncoding>, kWireForms.size()> encodings_;
  std::array<std::vector<double>, kWireForms.size()> seconds_;  // by step
  std::size_t form_ = 0;
  double step_s_ = 0;              // of the step so far
  std::optional<double> clock_s_;  // likewise, on a virtual clock; empty: there is none
};

/// `auto`: the first steps try each form in turn, and then each bucket stays with the one that was fastest on
/// the slowest rank.
class MeasuredGradients final : public GradientCompression {
 public:
  static constexpr int kTrials = 4;  ///< Steps of each form; the first of them does not count.

  explicit MeasuredGradients(std::uint64_t seed) : seed_(seed) {}

  void lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
               comm::Group& group) override;
  /// Collective over the group.
  void begin_step(std::int64_t number) override;
  comm::Encoding& of(std::size_t bucket) override { return encodings_.at(bucket); }
  std::string news() override { return std::exchange(news_, {}); }

 private:
  void choose();

  std::uint64_t seed_;
  comm::Group* group_ = nullptr;
  std::deque<MeasuredEncoding> encodings_;
  std::vector<std::int64_t> bytes_;  // by bucket
  std::vector<std::size_t> chosen_;  // by bucket; empty until then
  std::size_t steps_ = 0;
  std::string news_;
};

}  // namespace dtrain::parallel
