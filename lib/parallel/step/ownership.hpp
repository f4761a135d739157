#pragma once

#include <span>
#include <vector>

#include "core/slice.hpp"

namespace dtrain::parallel {

/// The micro-batches of a step that each rank of the data axis computes, by rank: contiguous, and in the
/// order of the ranks. Which rank computes what never changes what is summed.
using Ownership = std::vector<Range>;

/// As even as can be.
Ownership even_ownership(int micro_batches, int ranks);

/// Of the ranks, the one with the most: how many micro-batches it has.
int most_of(const Ownership& owned);

/// The most micro-batches that ownership_by_speed() gives a rank: twice an even share, so that what is
/// allocated for them stays bounded.
int most_owned(int micro_batches, int ranks);

/// The ownership with which the slowest rank of a step is done soonest. `seconds`: of a micro-batch, by rank;
/// positive. Each rank has one micro-batch at least, so that its speed stays known, and most_owned() at most.
/// `micro_batches`: at least as many as ranks. A pure function: all ranks find the same.
///
/// Each further micro-batch goes to the rank that would be done with it first, which is best where all are
/// alike. Rounding shares by largest remainder is not: of 20 micro-batches for three ranks and one that is
/// four times as slow it gives 6, 6, 6 and 2, which takes 8 times a micro-batch, and 7, 6, 6 and 1 takes 7.
Ownership ownership_by_speed(int micro_batches, std::span<const double> seconds);

/// What the slowest rank takes for its micro-batches.
double slowest_seconds(const Ownership& owned, std::span<const double> seconds);

}  // namespace dtrain::parallel
