#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "federated/partition_rule.hpp"

namespace dtrain::federated {

/// What a partition depends on beside its rule and the seed.
struct SampleFacts {
  std::int64_t samples = 0;                       ///< Of the training split.
  std::span<const std::int64_t> classes_of = {};  ///< [samples], from 0; empty: they have none.
  int classes = 0;                                ///< That there are.
  std::span<const std::int32_t> sites_of = {};    ///< [samples], from 0; empty: they have none.
  int sites = 0;                                  ///< That there are.
  std::span<const std::string> site_names = {};   ///< [sites]; empty: messages number them.
};

/// Which client holds which training samples: each sample has one client, and each client a sample. A pure
/// function of its arguments, the same on every rank.
class Partition {
 public:
  /// Throws Error (exit code 2) naming --partition or --clients where the samples do not allow the rule, or a
  /// client would be without data.
  ///
  /// Where chance decides, it is drawn anew until each client has a sample, kAttempts times.
  /// Sources: dirichlet, with its rule that a client with its even share of samples gets no more, and
  /// classes: Li et al., "Federated Learning on Non-IID Data Silos", ICDE 2022; classes as well: McMahan et
  /// al. 2017, whose two shards of sorted digits for each client it comes to with K = 2.
  static Partition make(const PartitionRule& rule, int clients, const SampleFacts& facts, std::uint64_t seed);
  static constexpr int kAttempts = 100;

  int clients() const { return static_cast<int>(ids_.size()); }
  /// The samples of a client, ascending.
  const std::vector<std::int64_t>& ids(int client) const { return ids_[static_cast<std::size_t>(client)]; }
  std::int64_t samples(int client) const { return static_cast<std::int64_t>(ids(client).size()); }
  std::int64_t samples() const;

  /// [samples()]: the client of each sample.
  std::vector<std::int32_t> owners() const;

  /// [clients(), classes]: how many samples of each class a client has.
  std::vector<std::int64_t> histogram(std::span<const std::int64_t> classes_of, int classes) const;

 private:
  explicit Partition(std::vector<std::vector<std::int64_t>> ids) : ids_(std::move(ids)) {}
  std::vector<std::vector<std::int64_t>> ids_;
};

}  // namespace dtrain::federated
