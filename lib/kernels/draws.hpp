#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/philox.hpp"

namespace dtrain::kernels {

/// Random numbers drawn one after another from one stream, made a buffer at a time: a pure function of the
/// key and of what was drawn before.
class Draws {
 public:
  explicit Draws(const RandomKey& key) : key_(key) {}

  /// In [0, bound); `bound` is at least 1. Multiplication instead of a remainder: the bias is below
  /// bound / 2^64.
  std::int64_t below(std::int64_t bound);

  /// In (0, 1), in steps of 2^-52.
  double unit();

  /// Of the standard normal distribution. Source: Box and Muller 1958.
  double normal();

  /// The logarithm of a number of the gamma distribution with this shape and scale 1; the number itself may
  /// be too small for a double. `shape` is positive. Source: Marsaglia and Tsang, "A simple method for
  /// generating gamma variables", ACM TOMS 26, 2000.
  double log_gamma(double shape);

 private:
  std::uint64_t word();
  void refill();

  RandomKey key_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 1024> words_{};
  std::size_t next_ = words_.size();
};

/// 0, 1, ..., n - 1 in an order drawn from the stream `key`. Fisher-Yates (Knuth, TAOCP 2, 3.4.2 P).
std::vector<std::int64_t> permutation(std::int64_t n, const RandomKey& key);

}  // namespace dtrain::kernels
