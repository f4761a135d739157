#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/survey/measurement.hpp"
#include "comm/types.hpp"

namespace dtrain::comm {

class Communicator;
class Groups;

/// Which all_reduce was fastest, by size, in groups that span nodes.
class AlgorithmTable {
 public:
  struct Entry {
    std::size_t up_to_bytes = 0;  ///< The last entry also holds beyond.
    Algorithm algorithm = Algorithm::automatic;
    bool operator==(const Entry&) const = default;
  };

  AlgorithmTable() = default;  ///< Nothing was measured.
  explicit AlgorithmTable(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  /// The fastest of each size; a size holds up to half-way, in powers, to the next.
  static AlgorithmTable fastest(const std::vector<Measurement>& measured);

  /// `65536 tree, 8388608 hierarchical`. Nothing where text is not that.
  static std::optional<AlgorithmTable> parse(std::string_view text);
  std::string to_string() const;

  std::optional<Algorithm> at(std::size_t bytes) const;
  bool operator==(const AlgorithmTable&) const = default;

 private:
  std::vector<Entry> entries_;
};

/// The table for the data groups of these ranks: rank 0's file `cache`, if it has one for a machine and
/// layout of that `name`; else measured, about a second over a link of 1 Gb/s, and written there (an empty
/// path, or one that cannot be written to: nowhere). Collective over `world`, and the same on every rank.
AlgorithmTable cached_table(Groups& groups, const Communicator& world, const std::string& cache,
                            const std::string& name);

}  // namespace dtrain::comm
