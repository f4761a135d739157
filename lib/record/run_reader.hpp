#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "h5/library.hpp"
#include "record/run_folder.hpp"

namespace dtrain::record {

/// A compound dataset read by column, whatever columns it has.
struct Table {
  std::size_t rows = 0;
  std::vector<std::string> order;                      ///< Column names, as in the file.
  std::vector<std::string> units;                      ///< As long as order.
  std::map<std::string, std::vector<double>> numbers;  ///< Integers beyond 2^53 lose their last bits.
  std::map<std::string, std::vector<std::string>> texts;

  bool has(const std::string& column) const { return numbers.contains(column) || texts.contains(column); }
  /// The numbers of a column. Throws Error when it is missing.
  const std::vector<double>& column(const std::string& name) const;
  /// NaN where the column is missing.
  double value(const std::string& name, std::size_t row) const;
};

/// One rank's rows.
struct RankRecord {
  int rank = 0;
  Table epochs;
  Table steps;  ///< As Detail says.
  Table events;
  Table samples;
};

/// A run as it lies in its folder.
struct RunRecord {
  std::string folder;
  Status status = Status::running;
  bool alive = false;   ///< Someone still writes: a process of this machine, or a file touched lately.
  bool merged = false;  ///< results.h5 has the rows of the ranks itself.
  std::map<std::string, std::string> attributes;  ///< Root attributes as text.
  Table topology;
  Table epochs;
  Table test;
  Table test_sites;                     ///< Empty where the dataset names no owners of its rows.
  Table rounds;                         ///< Of federated runs; else empty.
  Table clients;                        ///< Likewise.
  Table test_clients;                   ///< Likewise, of classifiers.
  Table privacy;                        ///< Of runs with differential privacy; else empty.
  std::vector<RankRecord> ranks;        ///< Ascending; those whose files could be read.
  std::vector<std::string> unreadable;  ///< Rank files that could not, with the reason.
};

enum class Detail {
  epochs,        ///< No rows of /ranks/NNNNN/steps.
  newest_steps,  ///< Also the last ones of each rank, some hundred.
  steps          ///< All of them.
};

/// Reads results.h5 and the live rank files: a finished run, a running one or one that was killed (status
/// `incomplete`). Throws Error: exit code 2 when `folder` is no run folder, 3 when results.h5 is damaged or
/// of another version.
RunRecord read_run(h5::Library& library, const std::string& folder, Detail detail);

}  // namespace dtrain::record
