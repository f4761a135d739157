#include "privacy/noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.hpp"
#include "kernels/philox.hpp"
#include "privacy/keystream.hpp"
#include "privacy/normal_floats.hpp"
#include "privacy/normal_numbers.hpp"

namespace dtrain::privacy {
namespace {

constexpr std::size_t kPairsAtOnce = 2048;

/// Adds numbers in pairs: `fill` gives the words of `pairs` pairs from pair `first` on. `skipped`: 1 where
/// the first number of the first pair is not wanted.
template <class Number, class Fill>
void add_pairs(std::span<Number> values, double deviation, std::size_t skipped, const Fill& fill) {
  std::vector<std::uint64_t> words(2 * kPairsAtOnce);
  std::vector<double> numbers(2 * kPairsAtOnce);
  std::uint64_t pair = 0;
  for (std::size_t done = 0; done < values.size();) {
    const auto wanted = values.size() - done + skipped;
    const auto pairs = std::min(kPairsAtOnce, (wanted + 1) / 2);
    fill(std::span(words).first(2 * pairs), pair);
    normal_numbers(words.data(), numbers.data(), pairs);
    const auto count = std::min(2 * pairs, wanted) - skipped;
    for (std::size_t i = 0; i < count; ++i)
      values[done + i] += static_cast<Number>(deviation * numbers[skipped + i]);
    done += count;
    pair += pairs;
    skipped = 0;
  }
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
                                 .purpose = kernels::Purpose::privacy,
                                 .major = static_cast<std::uint32_t>(step),
                                 .minor = static_cast<std::uint32_t>(step >> 32)};
    const auto block = static_cast<std::uint64_t>(first) / 2;
    std::vector<std::uint32_t> halves(4 * kPairsAtOnce);
    add_pairs(values, deviation, static_cast<std::size_t>(first % 2),
              [&](std::span<std::uint64_t> words, std::uint64_t pair) {
                kernels::philox_words(halves.data(), words.size() / 2, key, block + pair);
                for (std::size_t i = 0; i < words.size(); ++i)
                  words[i] = std::uint64_t{halves[2 * i]} << 32 | halves[2 * i + 1];
              });
  }

  std::uint64_t seed_;
};

class SecureNoise final : public Noise {
 public:
  void add(std::span<float> values, double deviation, std::int64_t /*step*/,
           std::int64_t /*first*/) override {
    while (values.size() > 1) {
      const auto pairs = std::min(kPairsAtOnce, values.size() / 2);
      keys_.fill(std::as_writable_bytes(std::span(lengths_).first(pairs)));
      keys_.fill(std::as_writable_bytes(std::span(turns_).first(pairs)));
      add_normal_floats(lengths_.data(), turns_.data(), static_cast<float>(deviation), values.data(), pairs);
      values = values.subspan(2 * pairs);
    }
    if (values.empty()) return;
    std::array<float, 2> two = {values[0], 0};
    add(two, deviation, 0, 0);
    values[0] = two[0];
  }
  void add(std::span<double> values, double deviation, std::int64_t /*step*/,
           std::int64_t /*first*/) override {
    add_pairs(values, deviation, 0, [this](std::span<std::uint64_t> words, std::uint64_t /*pair*/) {
      keys_.fill(std::as_writable_bytes(words));
    });
  }

 private:
  std::vector<std::uint64_t> lengths_ = std::vector<std::uint64_t>(kPairsAtOnce);
  std::vector<std::uint32_t> turns_ = std::vector<std::uint32_t>(kPairsAtOnce);
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
