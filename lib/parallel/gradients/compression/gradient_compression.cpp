#include "parallel/gradients/compression/gradient_compression.hpp"

#include <fmt/format.h>

#include <deque>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "parallel/gradients/compression/later_compression.hpp"
#include "parallel/gradients/compression/measured_choice.hpp"
#include "parallel/gradients/compression/power_sgd.hpp"
#include "parallel/gradients/compression/rounded_sum.hpp"
#include "parallel/gradients/compression/top_k.hpp"

namespace dtrain::parallel {
namespace {

using Kind = CompressionChoice::Kind;

constexpr int kMostRank = 256;
constexpr double kMostShare = 0.5;  // a place takes as many bytes as a value

WireType wire_type(Kind kind) {
  if (kind == Kind::fp16) return WireType::float16;
  return kind == Kind::bf16 ? WireType::bfloat16 : WireType::int8;
}

/// Nothing is kept from step to step.
class RoundedGradients final : public GradientCompression {
 public:
  RoundedGradients(WireType type, std::uint64_t seed) : type_(type), seed_(seed) {}

  void lay_out(const FlatParameters& /*parameters*/, const std::vector<Range>& buckets,
               comm::Group& /*group*/) override {
    for (const Range& bucket : buckets)
      encodings_.emplace_back(type_, seed_, static_cast<std::uint64_t>(bucket.begin));
  }
  void begin_step(std::int64_t number, std::int64_t /*samples*/) override {
    for (auto& encoding : encodings_) encoding.begin_step(number);
  }
  comm::Encoding& of(std::size_t bucket) override { return encodings_.at(bucket); }

 private:
  WireType type_;
  std::uint64_t seed_;
  std::deque<RoundedEncoding> encodings_;  // by bucket
};

}  // namespace

CompressionChoice CompressionChoice::parse(std::string_view text) {
  if (text == "none") return {};
  if (text == "fp16") return {Kind::fp16};
  if (text == "bf16") return {Kind::bf16};
  if (text == "int8") return {Kind::int8};
  if (text == "auto") return {Kind::automatic};
  constexpr std::string_view kTopK = "topk=";
  if (text.starts_with(kTopK)) {
    const auto share = parse_number<double>(text.substr(kTopK.size()));
    if (share && *share > 0 && *share <= kMostShare) return {.kind = Kind::topk, .share = *share};
    throw usage_error(fmt::format("\"{}\" has no share of the values to work with", printable(text)),
                      "--compression", fmt::format("use topk=0.01, or another share up to {}", kMostShare));
  }
  constexpr std::string_view kPowerSgd = "powersgd=";
  if (text.starts_with(kPowerSgd)) {
    const auto rank = parse_number<int>(text.substr(kPowerSgd.size()));
    if (rank && *rank >= 1 && *rank <= kMostRank) return {.kind = Kind::powersgd, .rank = *rank};
    throw usage_error(fmt::format("\"{}\" has no rank to work with", printable(text)), "--compression",
                      fmt::format("use powersgd=2, or another rank up to {}", kMostRank));
  }
  throw usage_error(fmt::format("\"{}\" is not a value it takes", printable(text)), "--compression",
                    "use one of none, fp16, bf16, int8, powersgd=R, topk=F, auto");
}

std::unique_ptr<GradientCompression> make_compression(const CompressionChoice& choice, std::uint64_t seed,
                                                      std::int64_t after) {
  if (!choice) return nullptr;
  if (after > 0) return std::make_unique<LaterCompression>(make_compression(choice, seed), after);
  if (choice.kind == Kind::automatic) return std::make_unique<MeasuredGradients>(seed);
  if (choice.kind == Kind::topk) return std::make_unique<TopKGradients>(choice.share);
  if (choice.kind == Kind::powersgd) return std::make_unique<PowerSgdGradients>(choice.rank, seed);
  return std::make_unique<RoundedGradients>(wire_type(choice.kind), seed);
}

}  // namespace dtrain::parallel
