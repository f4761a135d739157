#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "privacy/ledger.hpp"

namespace dtrain::parallel {

/// What a strategy whose steps are differentially private tells the loop. Its steps are of records that it
/// draws itself, and there is an end to what it may release.
class PrivateTraining {
 public:
  virtual ~PrivateTraining() = default;

  /// The records of each step of an epoch (from 1), the same on all ranks. Not collective.
  virtual std::vector<std::vector<std::int64_t>> draws(int epoch) const = 0;

  /// All that the run has released.
  virtual const privacy::Ledger& ledger() const = 0;
  /// What an earlier part of the run has released besides, after the checkpoint that this one begins with.
  virtual void take_ledger(const privacy::Ledger& earlier) = 0;

  /// Whether another step would release more than `--target-epsilon`. Collective.
  virtual bool is_spent() = 0;

  /// What ledger() comes to; infinity without noise. May take a second.
  virtual double epsilon() const = 0;

  /// A step: clip norm, noise in multiples of it, share of the records.
  struct Terms {
    double delta = 0;
    double clip = 0;
    double noise = 0;
    double rate = 0;
    double target_epsilon = 0;  ///< 0: there is no budget.
  };
  virtual Terms terms() const = 0;
  /// For a log, with adjacency, sampler, accountant, and what is slow.
  virtual std::string in_words() const = 0;
};

}  // namespace dtrain::parallel
