#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dtrain::data {

/// The order in which an epoch visits its samples.
enum class Order {
  shuffled,  ///< Training: a permutation drawn from Philox(seed, sampling, epoch).
  identity,  ///< Evaluation: 0, 1, 2, ...
};

/// The permutation of [0, samples) that epoch `epoch` (from 1) visits: a pure function of its arguments, the
/// same on every rank and after a resume. Fisher-Yates (Knuth, TAOCP 2, 3.4.2 P); 10 ms for 1e6 samples.
std::vector<std::int64_t> epoch_order(std::int64_t samples, Order order, std::uint64_t seed,
                                      std::int64_t epoch);

/// The order in which an epoch of training visits its samples. Without `lengths` that is epoch_order,
/// shuffled. With the length of each sample: shuffled, then sorted by length within windows of 64 batches,
/// cut into batches, and the batches shuffled, so that the sequences of a batch are about equally long and
/// little of what is computed is padding. The epoch's smaller last batch is drawn first, whatever its
/// lengths. Within a batch the longer come later. A pure function of its arguments; every sample is there
/// once.
std::vector<std::int64_t> training_order(std::int64_t samples, std::span<const std::int64_t> lengths,
                                         std::int64_t global_batch, std::uint64_t seed, std::int64_t epoch);

/// An order-free hash of sample ids: sums over ranks and steps add up (modulo 2^64) to the hash of the whole,
/// so `/ranks/*/samples` proves that each sample was used exactly once.
std::uint64_t sample_hash(std::span<const std::int64_t> ids);

/// sample_hash of 0, 1, ..., samples - 1: what an epoch must come to.
std::uint64_t epoch_hash(std::int64_t samples);

/// One piece that a rank is to compute: what its loader must bring.
struct PieceRequest {
  std::int64_t step = 0;              ///< The caller's number of the step; handed back with the batch.
  int micro_batch = 0;                ///< In [0, M).
  std::vector<std::int64_t> samples;  ///< Ids; may be empty.
};

}  // namespace dtrain::data
