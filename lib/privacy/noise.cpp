#include "privacy/noise.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "kernels/philox.hpp"
#include "privacy/keystream.hpp"
#include "privacy/purpose.hpp"

namespace dtrain::privacy {
namespace {

/// Two independent standard normal numbers from 128 uniform bits.
std::pair<double, double> normal_pair(std::uint64_t one, std::uint64_t other) {
  const double radius =
      std::sqrt(-2 * std::log((static_cast<double>(one >> 11) + 1) * 0x1p-53));  // of (0, 1]
  const double angle = 2 * std::numbers::pi * static_cast<double>(other >> 11) * 0x1p-53;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Elements 2 b and 2 b + 1 of the whole have the pair of block b: a part of it needs no other part.
class SeededNoise final : public Noise {
 public:
  explicit SeededNoise(std::uint64_t seed) : seed_(seed) {}
  void add(std::span<float> values, double deviation, std::int64_t step, std::int64_t first) override {
    add_to(values, deviation, step, first);
  }
  void add(std::span<double> values, double deviation, std::int64_t step, std::int64_t first) override {
    add_to(values, deviation, step, first);
  }

 private:
  template <class Number>
  void add_to(std::span<Number> values, double deviation, std::int64_t step, std::int64_t first) const {
    const kernels::RandomKey key{.seed = seed_,
                                 .purpose = kPrivacyPurpose,
                                 .major = static_cast<std::uint32_t>(step),
                                 .minor = static_cast<std::uint32_t>(step >> 32)};
    for (std::size_t i = 0; i < values.size();) {
      const auto element = static_cast<std::uint64_t>(first) + i;
      const auto words = kernels::philox_block(key, element / 2);
      const auto [even, odd] =
          normal_pair(std::uint64_t{words[0]} << 32 | words[1], std::uint64_t{words[2]} << 32 | words[3]);
      if (element % 2 == 0) values[i++] += static_cast<Number>(deviation * even);
      if (i < values.size()) values[i++] += static_cast<Number>(deviation * odd);
    }
  }

  std::uint64_t seed_;
};

class SecureNoise final : public Noise {
 public:
  void add(std::span<float> values, double deviation, std::int64_t /*step*/,
           std::int64_t /*first*/) override {
    add_to(values, deviation);
  }
  void add(std::span<double> values, double deviation, std::int64_t /*step*/,
           std::int64_t /*first*/) override {
    add_to(values, deviation);
  }

 private:
  template <class Number>
  void add_to(std::span<Number> values, double deviation) {
    constexpr std::size_t kAtOnce = 4096;  // pairs
    std::vector<std::uint64_t> words(2 * kAtOnce);
    for (std::size_t i = 0; i < values.size();) {
      const auto pairs = std::min(kAtOnce, (values.size() - i + 1) / 2);
      keys_.fill(std::as_writable_bytes(std::span(words).first(2 * pairs)));
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        const auto [one, other] = normal_pair(words[2 * pair], words[2 * pair + 1]);
        values[i++] += static_cast<Number>(deviation * one);
        if (i < values.size()) values[i++] += static_cast<Number>(deviation * other);
      }
    }
  }

  Keystream keys_;
};

}  // namespace

NoiseSource parse_noise_source(const std::string& text) {
  if (text == "secure") return NoiseSource::secure;
  if (text == "seeded") return NoiseSource::seeded;
  throw usage_error(fmt::format("'{}' is no source of noise", text), "--noise-source",
                    "use secure, or in a test seeded");
}

std::string name_of(NoiseSource source) { return source == NoiseSource::secure ? "secure" : "seeded"; }

std::unique_ptr<Noise> make_noise(NoiseSource source, std::uint64_t seed) {
  if (source == NoiseSource::seeded) return std::make_unique<SeededNoise>(seed);
  return std::make_unique<SecureNoise>();
}

std::uint64_t secret_seed() {
  std::array<std::uint64_t, 1> seed = {};
  Keystream().fill(std::as_writable_bytes(std::span(seed)));
  return seed[0];
}

}  // namespace dtrain::privacy
