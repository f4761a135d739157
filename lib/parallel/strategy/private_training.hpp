#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrain::parallel {

/// What a strategy whose steps are differentially private tells the loop. Its steps are of records or clients
/// that it draws itself, and there is an end to what it may release.
class PrivateTraining {
 public:
  virtual ~PrivateTraining() = default;

  /// The records of each step of an epoch (from 1), the same on all ranks. Empty where the samples belong to
  /// clients. Not collective.
  virtual std::vector<std::vector<std::int64_t>> draws(int /*epoch*/) const { return {}; }

  /// Where the samples belong to clients, those of a round, ascending. Nothing: they are sampled without
  /// secrets. The same on all ranks, not collective.
  virtual std::optional<std::vector<int>> drawn_clients(std::int64_t /*round*/) const { return std::nullopt; }
  /// Likewise the places among a client's own samples that one of its local steps uses, ascending; `index`:
  /// of the step within the round. Nothing: the client goes through its samples in passes.
  virtual std::optional<std::vector<std::int64_t>> drawn_records(std::int64_t /*round*/,
                                                                 std::uint32_t /*index*/,
                                                                 int /*client*/) const {
    return std::nullopt;
  }

  /// All that the run has released, as lines for a file beside the results.
  virtual std::string ledger() const = 0;
  /// What an earlier part of the run has released besides, after the checkpoint that this one begins with:
  /// the lines of its ledger() in `file`. Returns how many steps more are counted now, of all ledgers. Throws
  /// Error (exit code 4) for another kind of ledger.
  virtual std::int64_t take_ledger(const std::string& lines, const std::string& file) = 0;
  /// Steps in the ledger; of several ledgers those of the worst.
  virtual std::int64_t releases() const = 0;

  /// Whether another step would release more than `--target-epsilon`. Collective.
  virtual bool is_spent() = 0;

  /// What the ledger comes to, of several the worst; infinity without noise. May take a second.
  virtual double epsilon() const = 0;

  /// A step: clip norm, noise in multiples of it, share of the records or clients.
  struct Terms {
    double delta = 0;
    double clip = 0;
    double noise = 0;
    double rate = 0;
    double target_epsilon = 0;    ///< 0: there is no budget.
    std::string unit = "record";  ///< What is protected: `record` or `client`.
  };
  virtual Terms terms() const = 0;

  /// What one client of several has released, where each has a ledger of its own.
  struct OfClient {
    int client = 0;
    std::int64_t steps = 0;  ///< Local ones.
    double rate = 0;
    double epsilon = 0;
  };
  /// Of all clients, each an upper bound; empty where there is one ledger. May take seconds.
  virtual std::vector<OfClient> by_client() const { return {}; }

  /// For a log, with adjacency, sampler, accountant, and what is slow.
  virtual std::string in_words() const = 0;
};

}  // namespace dtrain::parallel
