#include "kernels/draws.hpp"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace dtrain::kernels {
namespace {

__extension__ typedef unsigned __int128 Wide;  // for the upper half of a 64-bit product

}  // namespace

void Draws::refill() {
  philox_words(words_.data(), words_.size() / 4, key_, block_);
  block_ += words_.size() / 4;
  next_ = 0;
}

std::uint64_t Draws::word() {
  if (next_ == words_.size()) refill();
  const std::uint64_t low = words_[next_];
  const std::uint64_t high = words_[next_ + 1];
  next_ += 2;
  return (high << 32) | low;
}

std::int64_t Draws::below(std::int64_t bound) {
  return static_cast<std::int64_t>(static_cast<Wide>(word()) * static_cast<std::uint64_t>(bound) >> 64);
}

double Draws::unit() { return (static_cast<double>(word() >> 12) + 0.5) * 0x1.0p-52; }

double Draws::normal() {
  const double radius = std::sqrt(-2 * std::log(unit()));
  return radius * std::cos(2 * std::numbers::pi * unit());
}

double Draws::log_gamma(double shape) {
  // Below 1 that of shape + 1 times a power of a uniform number.
  if (shape < 1) return log_gamma(shape + 1) + std::log(unit()) / shape;
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(unit()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

std::vector<std::int64_t> permutation(std::int64_t n, const RandomKey& key) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  Draws draws(key);
  for (std::int64_t i = n - 1; i > 0; --i) std::swap(ids[i], ids[draws.below(i + 1)]);
  return ids;
}

}  // namespace dtrain::kernels
