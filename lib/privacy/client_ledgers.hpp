#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "privacy/ledger.hpp"

namespace dtrain::privacy {

/// A ledger for each client of federated training, whose records are protected and whose local steps differ
/// in number and in the share of its records that they draw.
class ClientLedgers {
 public:
  static constexpr std::size_t kMostEntries = 8;  ///< Of a client: different noises and rates.
  static constexpr std::size_t kNumbers = kMostEntries * Ledger::kFields;

  explicit ClientLedgers(std::size_t clients) : ledgers_(clients) {}

  std::size_t size() const { return ledgers_.size(); }
  const Ledger& of(std::size_t client) const { return ledgers_.at(client); }
  std::int64_t steps() const;  ///< Of all clients together.
  /// `count` local steps more. Throws Error where the client has kMostEntries other mechanisms.
  void add_steps(std::size_t client, const SampledGaussian& mechanism, std::int64_t count);

  /// As numbers [clients x kNumbers] for a checkpoint, and back: Ledger::numbers().
  void write_numbers(std::span<double> numbers) const;
  static ClientLedgers of_numbers(std::span<const double> numbers);

  /// As lines for a file, and back: Ledger::lines(). Throws Error (exit code 4), naming `file`, also where it
  /// is of more clients than `clients`.
  std::string lines() const;
  static ClientLedgers of_lines(const std::string& text, const std::string& file, std::size_t clients);

  /// Ledger::take_larger() of each client. `other` has as many.
  void take_larger(const ClientLedgers& other);

 private:
  std::vector<Ledger> ledgers_;
};

}  // namespace dtrain::privacy
