#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "h5/library.hpp"
#include "record/rows.hpp"
#include "record/run_folder.hpp"

namespace dtrain::record {

inline constexpr std::int64_t kResultsVersion =
    1;  ///< A new one only when a field is removed or changes meaning.

/// The root attributes of results.h5 that are known at the start.
struct RunInfo {
  std::string name;
  std::string model;
  std::string dataset;
  std::string strategy;
  std::string mesh;  ///< `data=4,pipe=1,tensor=1`.
  std::int64_t world_size = 1;
  std::string start_time_utc;
  std::string dtrain_version;
  std::string command_line;
  std::string config;         ///< The effective configuration, TOML.
  std::string emulated = {};  ///< The machine that was emulated, in words; empty: none, and no attribute.
  std::string tf32 = {};      ///< Of devices that compute in fp32: `on` or `off`; empty: no attribute.
};

/// A column that a model adds to /epochs, and without `validation_` in its name to /validations and /test.
struct ExtraColumn {
  std::string name;
  std::string units;
};

/// Rows of a table, and beside them the values of the extra columns.
template <class Row>
struct ExtendedRows {
  std::vector<Row> rows;
  std::vector<double> extra;  ///< [rows, extra columns]
};

/// Which classes a classifier took for which.
struct ConfusionMatrix {
  std::vector<std::string> classes;  ///< Their names; empty: they have none.
  std::vector<std::int64_t> counts;  ///< [classes, classes]: samples by class and predicted class.
};

/// The clients of a federated run, and what they hold of the training split.
struct Clients {
  std::vector<ClientRow> rows;
  std::vector<std::int64_t> classes;  ///< [clients, classes]: samples of each; empty: they have no classes.
  std::vector<std::int64_t> owners;   ///< [samples]: the client of each.
  bool named = false;                 ///< They are the owners of rows that the dataset names, in their order.
};

/// Rank 0's results.h5. Every change writes the whole file aside and renames it, so a reader finds a whole
/// one at every moment.
class ResultsWriter {
 public:
  /// Makes the run folder, results.h5 and `state` = running. With `kept` the rows of /epochs and /validations
  /// up to there, and those of /topology, are taken over from the results.h5 that an earlier part of the run
  /// has left. A damaged one
  /// is set aside as results.h5.damaged, and lost() says so. Throws Error, exit code 2 when it cannot be
  /// written.
  ResultsWriter(h5::Library& library, std::string folder, RunInfo info, std::vector<ExtraColumn> extra = {},
                const std::optional<Kept>& kept = std::nullopt);

  const std::string& lost() const { return lost_; }  ///< Empty: nothing was.

  void topology(std::vector<TopologyRow> rows);  ///< Replaces all rows, and writes the file.

  /// Appends a row of /epochs and writes the file. `extra` has one value per extra column: throws Error
  /// otherwise.
  void epoch(const EpochRow& row, std::span<const double> extra = {});

  /// Appends rows of /staleness: how many updates of the epoch were as late as their index; written with the
  /// next change.
  void staleness(std::int64_t epoch, std::span<const std::int64_t> updates);

  /// Appends a row of /rounds; written with the next change.
  void round(const RoundRow& row) { rounds_.push_back(row); }

  /// The rows of /test_sites; written with the next change.
  void test_sites(std::vector<SiteRow> rows) { sites_ = std::move(rows); }

  /// The rows of /test_clients; written with the next change.
  void test_clients(std::vector<ClientTestRow> rows) { client_tests_ = std::move(rows); }

  /// The rows of /clients, /client_classes and /client_of_sample; writes the file.
  void clients(Clients clients);

  /// Appends a row of /privacy; written with the next change.
  void privacy(const PrivacyRow& row) { privacy_.push_back(row); }

  /// The rows of /client_privacy; written with the next change.
  void client_privacy(std::vector<ClientPrivacyRow> rows) { client_privacy_ = std::move(rows); }

  /// Appends a row of /validations, which replaces an earlier one of that step; written with the next change.
  /// `extra` as for epoch().
  void validation(const ValidationRow& row, std::span<const double> extra = {});

  /// The row of /test, with `extra` as for epoch(), /test_confusion and /test_classes (neither where there
  /// are no counts); writes the file.
  void test(const TestRow& row, std::span<const double> extra = {}, ConfusionMatrix confusion = {});

  /// Sets status and end_time_utc, copies the closed rank files in (links above 1 GiB in all, or where the
  /// disk has no room for copies), writes the file and then `state`, and returns when the disk has both. All
  /// ranks have closed their recorders. Nothing else is called afterwards. Throws Error when the disk is
  /// full; `state` is then left as it was.
  void finish(Status status);

  void write_now() { write_if_possible(); }

  const std::string& folder() const { return folder_; }

  /// Why the newest rows are not in the file; empty when they are.
  const std::string& problem() const { return problem_; }

 private:
  void take_over(const Kept& kept);
  void take_over_or_set_aside(const Kept& kept);
  template <class Row>
  void append(ExtendedRows<Row>& table, const Row& row, std::span<const double> extra) const;
  void write_if_possible();
  std::uint64_t own_bytes() const;
  void write(Status status, const std::string& end_time_utc);

  h5::Library& library_;
  std::string folder_;
  RunInfo info_;
  std::vector<ExtraColumn> extra_;
  std::string lost_;
  std::vector<TopologyRow> topology_;
  ExtendedRows<EpochRow> epochs_;
  ExtendedRows<ValidationRow> validations_;
  ExtendedRows<TestRow> test_;
  std::vector<StalenessRow> staleness_;
  std::vector<RoundRow> rounds_;
  Clients clients_;
  std::vector<SiteRow> sites_;
  std::vector<ClientTestRow> client_tests_;
  std::vector<PrivacyRow> privacy_;
  std::vector<ClientPrivacyRow> client_privacy_;
  ConfusionMatrix confusion_;
  std::string problem_;
};

/// The attribute start_time_utc of a results.h5; empty when it cannot be read.
std::string start_time_of(h5::Library& library, const std::string& file);

/// The rows of /topology in a results.h5; none when it cannot be read, or has rows that no run writes.
std::vector<TopologyRow> topology_of(h5::Library& library, const std::string& file);

/// For a run that ended without merging: copies or links its live rank files into results.h5 and sets
/// `status` there. The file `state` is left as it is. Throws Error when the folder cannot be written.
void finish_interrupted(h5::Library& library, const std::string& folder, Status status);

}  // namespace dtrain::record
