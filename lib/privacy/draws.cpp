#include "privacy/draws.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/philox.hpp"

namespace dtrain::privacy {
namespace {

/// A number for each record; `stream` tells uses apart.
std::vector<std::uint32_t> words_of(std::int64_t records, std::uint64_t seed, std::int64_t number,
                                    std::uint32_t stream) {
  const auto blocks = (static_cast<std::uint64_t>(records) + 3) / 4;
  std::vector<std::uint32_t> words(4 * blocks);
  kernels::philox_words(words.data(), blocks,
                        {.seed = seed,
                         .purpose = kernels::Purpose::privacy,
                         .major = static_cast<std::uint32_t>(number),
                         .minor = static_cast<std::uint32_t>(number >> 32),
                         .stream = stream},
                        0);
  return words;
}

constexpr std::uint32_t kPoissonStream = 1;  // noise has 0
constexpr std::uint32_t kOnceStream = 2;

}  // namespace

std::vector<std::int64_t> poisson_draw(std::int64_t records, double rate, std::uint64_t seed,
                                       std::int64_t step) {
  const auto below = static_cast<std::uint64_t>(std::floor(std::clamp(rate, 0.0, 1.0) * 0x1p32));
  const auto words = words_of(records, seed, step, kPoissonStream);
  std::vector<std::int64_t> drawn;
  for (std::int64_t i = 0; i < records; ++i) {
    if (words[static_cast<std::size_t>(i)] < below) drawn.push_back(i);
  }
  return drawn;
}

std::vector<std::vector<std::int64_t>> once_an_epoch_draws(std::int64_t records, std::int64_t steps,
                                                           std::uint64_t seed, std::int64_t epoch) {
  const auto words = words_of(records, seed, epoch, kOnceStream);
  std::vector<std::vector<std::int64_t>> drawn(static_cast<std::size_t>(steps));
  for (std::int64_t i = 0; i < records; ++i) {
    const auto step =
        std::uint64_t{words[static_cast<std::size_t>(i)]} * static_cast<std::uint64_t>(steps) >> 32;
    drawn[step].push_back(i);
  }
  return drawn;
}

}  // namespace dtrain::privacy
