#pragma once

#include <cstdint>
#include <vector>

namespace dtrain::privacy {

/// The records of step `step`, ascending, each of `records` with probability `rate`, rounded down to a
/// multiple of 2^-32, and independent of all others and of other steps. May be empty. A pure function of its
/// arguments.
std::vector<std::int64_t> poisson_draw(std::int64_t records, double rate, std::uint64_t seed,
                                       std::int64_t step);

/// The records of each step of epoch `epoch`, ascending: each is in one of `steps`, drawn evenly (up to
/// 2^-32) and independently. A pure function of its arguments.
std::vector<std::vector<std::int64_t>> once_an_epoch_draws(std::int64_t records, std::int64_t steps,
                                                           std::uint64_t seed, std::int64_t epoch);

}  // namespace dtrain::privacy
