#pragma once

#include <cstdint>
#include <vector>

#include "privacy/secure_aggregation/secrets.hpp"

namespace dtrain::privacy {

/// One share of a secret: the values at `place` of 32 polynomials over GF(2^8).
struct Share {
  std::uint8_t place = 0;  ///< From 1.
  Secret values;
};

/// Shares of `secret`, at most 255, of which any `threshold` give it back and fewer say nothing of it.
/// Source: Shamir, "How to Share a Secret", 1979. Throws Error (exit code 2) for a threshold above the
/// shares, or not above half of them: two halves could each believe in a set of survivors of their own.
std::vector<Share> split(const Secret& secret, int shares, int threshold);

/// The secret of exactly `threshold` shares or more of one split. Throws Error where there are fewer, or two
/// of one place. Shares of other secrets give another secret: what it opens must be authenticated.
Secret joined(const std::vector<Share>& shares, int threshold);

}  // namespace dtrain::privacy
