#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "privacy/sampled_gaussian.hpp"

namespace dtrain::privacy {

/// What a run has released so far: all its steps, those that were made again after a failure as well. It is
/// part of the state that a step changes, so that it is saved with the update that it belongs to.
class Ledger {
 public:
  static constexpr std::size_t kMostEntries =
      32;                                    ///< Different mechanisms: the noise of a run rarely changes.
  static constexpr std::size_t kFields = 4;  ///< Sampling, noise multiplier, rate, steps.

  /// One step more, of this mechanism, whose `steps` count nothing. Throws Error where there are kMostEntries
  /// others.
  void add_step(const SampledGaussian& mechanism) { add_steps(mechanism, 1); }
  void add_steps(const SampledGaussian& mechanism, std::int64_t count);

  const Mechanisms& mechanisms() const { return entries_; }
  std::int64_t steps() const;  ///< Of all.

  /// As numbers [kMostEntries x kFields] for a checkpoint, unused ones 0, and back. Throws Error (exit code
  /// 4) for numbers that are no ledger.
  std::vector<double> numbers() const;
  static Ledger of_numbers(std::span<const double> numbers);

  /// As lines for a file beside the run's results, and back. `unit`: what is one more or less in a
  /// neighbouring dataset, a word; empty: a record. Throws Error (exit code 4), naming `file`, also where it
  /// is of another unit.
  std::string lines(const std::string& unit = "") const;
  static Ledger of_lines(const std::string& text, const std::string& file, const std::string& unit = "");

  /// What either has of each Poisson mechanism: after a failure a checkpoint's ledger lacks the steps that
  /// were made after it, and the file beside the results has them. What is made again adds to them. Where
  /// each record takes part once an epoch, the steps that are missing here will be made again with the same
  /// records: they count as steps in which all take part, one for each epoch that they may touch.
  void take_larger(const Ledger& other);

 private:
  SampledGaussian& entry_like(const SampledGaussian& mechanism);

  Mechanisms entries_;
};

}  // namespace dtrain::privacy
