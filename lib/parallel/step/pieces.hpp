#pragma once

#include <cstdint>

#include "core/slice.hpp"

namespace dtrain::parallel {

/// How the steps of an epoch are cut: a step into micro-batches, the micro-batches over the data axis.
/// Which sums a step computes depends on samples, global_batch and micro_batches only, never on data_ranks.
struct Pieces {
  std::int64_t samples = 0;       ///< Of the split, each used once an epoch.
  std::int64_t global_batch = 1;  ///< Samples of a step; the epoch's last step may have fewer.
  int micro_batches = 1;          ///< Pieces of a step, over all ranks.
  int data_ranks = 1;

  std::int64_t steps() const { return (samples + global_batch - 1) / global_batch; }

  /// Positions in the epoch's order that step `s` (from 0) uses.
  Range step(std::int64_t s) const {
    const auto begin = s * global_batch;
    return {begin, begin + global_batch < samples ? begin + global_batch : samples};
  }

  /// Positions of micro-batch `k` of step `s`; may be empty.
  Range piece(std::int64_t s, int k) const {
    const auto whole = step(s);
    const auto part = part_of(whole.size(), k, micro_batches);
    return {whole.begin + part.begin, whole.begin + part.end};
  }

  /// The micro-batches that data rank `r` computes: contiguous, as even as can be.
  Range owned_by(int r) const { return part_of(micro_batches, r, data_ranks); }
};

}  // namespace dtrain::parallel
