#include "record/run_reader.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <limits>
#include <system_error>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "h5/attribute.hpp"
#include "h5/file.hpp"
#include "record/process.hpp"
#include "record/rank_files.hpp"
#include "record/results_writer.hpp"
#include "record/run_holder.hpp"
#include "record/table_file.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kSilence{60};  // a recorder touches its file every second

constexpr std::size_t kNewestSteps = 512;  // rows: a chunk of the file

constexpr std::size_t kMostOfAnAttribute = 10'000;

constexpr std::array<const char*, 14> kTextAttributes = {
    "name",           "model",        "dataset",        "strategy",     "mesh",   "status",
    "start_time_utc", "end_time_utc", "dtrain_version", "command_line", "config", "unreadable_ranks",
    "emulated",       "tf32"};

bool touched_lately(const std::string& path) {
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written < kSilence;
}

// Whether the rank that writes `file` lives. Its process is looked for where it can be.
bool writer_lives(const h5::File& file, const std::string& path) {
  if (!touched_lately(path)) return false;
  if (!h5::has_attribute(file.id(), "pid") ||
      h5::read_string_attribute(file.id(), "hostname") != this_host()) {
    return true;
  }
  return start_of_process(h5::read_int_attribute(file.id(), "pid")).has_value();
}

void keep_rows(Table& table, std::size_t rows) {
  table.rows = rows;
  for (auto& [name, values] : table.numbers) values.resize(rows);
  for (auto& [name, values] : table.texts) values.resize(rows);
}

// Of a burst that was cut by a kill the last rows can be zeros; steps and epochs count from 1.
Table without_cut_rows(Table table, const std::string& counter) {
  const auto found = table.numbers.find(counter);
  if (found == table.numbers.end()) return table;
  std::size_t rows = table.rows;
  while (rows > 0 && found->second[rows - 1] == 0) --rows;
  keep_rows(table, rows);
  return table;
}

/// A row that a kill has cut has no kind. Such rows are the last ones.
void without_cut_events(Table& events) {
  const auto kinds = events.texts.find("kind");
  if (kinds == events.texts.end()) return;
  auto rows = events.rows;
  while (rows > 0 && kinds->second[rows - 1].empty()) --rows;
  keep_rows(events, rows);
}

Table newest_steps(hid_t group) {
  auto steps = without_cut_rows(read_table(group, "steps", kNewestSteps), "step");
  if (steps.rows == 0) steps = without_cut_rows(read_table(group, "steps"), "step");  // all were cut ones
  return steps;
}

RankRecord read_rank(hid_t group, int rank, Detail detail) {
  RankRecord record;
  record.rank = rank;
  record.epochs = without_cut_rows(read_table(group, "epochs"), "epoch");
  record.events = read_table(group, "events");
  without_cut_events(record.events);
  record.samples = without_cut_rows(read_table(group, "samples"), "epoch");
  if (detail == Detail::newest_steps) record.steps = newest_steps(group);
  if (detail == Detail::steps) record.steps = without_cut_rows(read_table(group, "steps"), "step");
  return record;
}

void check_version(const h5::File& file, const std::string& path) {
  const bool ours = h5::has_attribute(file.id(), "format") && h5::has_attribute(file.id(), "version") &&
                    h5::read_string_attribute(file.id(), "format") == "dtrain.results";
  if (!ours) throw data_error("is no results file of dtrain", path, "name the folder of a run");
  const std::int64_t version = h5::read_int_attribute(file.id(), "version");
  if (version != kResultsVersion) {
    throw data_error("has format version " + std::to_string(version) + ", but this dtrain reads version " +
                         std::to_string(kResultsVersion),
                     path, "read it with the dtrain that wrote it");
  }
}

// Everything but the ranks.
void read_results(const h5::File& file, const std::string& path, RunRecord& run) {
  check_version(file, path);
  for (const char* name : kTextAttributes) {
    if (!h5::has_attribute(file.id(), name)) continue;
    const std::string text = h5::read_string_attribute(file.id(), name);
    const bool has_lines = std::string_view(name) == "config";
    run.attributes[name] = has_lines ? text : printable(text, kMostOfAnAttribute);  // it goes to a terminal
  }
  const std::int64_t world_size = h5::read_int_attribute(file.id(), "world_size");
  if (world_size < 1 || world_size > std::numeric_limits<int>::max())
    throw data_error("says that its run had " + std::to_string(world_size) + " ranks", path,
                     "the file is damaged: take another copy of it");
  run.attributes["world_size"] = std::to_string(world_size);
  run.topology = read_table(file.id(), "topology");
  run.epochs = read_table(file.id(), "epochs");
  run.test = read_table(file.id(), "test");
  const auto read_if_there = [&](const char* name) {
    return H5Lexists(file.id(), name, H5P_DEFAULT) > 0 ? read_table(file.id(), name) : Table();
  };
  run.test_sites = read_if_there("test_sites");
  run.rounds = read_if_there("rounds");
  run.clients = read_if_there("clients");
  run.test_clients = read_if_there("test_clients");
  run.privacy = read_if_there("privacy");
}

void read_merged_ranks(const h5::File& file, RunRecord& run, Detail detail) {
  if (!h5::exists(file.id(), "ranks")) return;
  for (const std::string& name : h5::names(file.id(), "ranks")) {
    const auto rank = parse_number<int>(name);
    if (!rank) continue;
    try {
      const auto other = h5::file_of_link(file.id(), rank_group(*rank));
      require(other.empty() || other == fmt::format("ranks/rank-{:05}.h5", *rank),
              "is linked to a file that is not of this run", {.subject = rank_group(*rank)});
      const h5::Group group = h5::open_group(file.id(), rank_group(*rank));
      run.ranks.push_back(read_rank(group.id(), *rank, detail));
    } catch (const Error& error) {
      run.unreadable.push_back("rank " + name + ": " + error.what());
    }
  }
}

void read_live_ranks(RunRecord& run, Detail detail) {
  for (const RankFile& rank_file : rank_files(run.folder)) {
    try {
      const h5::File file = h5::open_file(rank_file.path, h5::Access::read);
      run.alive = run.alive || writer_lives(file, rank_file.path);
      run.ranks.push_back(read_rank(file.id(), rank_file.rank, detail));
    } catch (const Error& error) {
      run.unreadable.push_back("rank " + std::to_string(rank_file.rank) + ": " + error.what());
    }
  }
}

}  // namespace

RunRecord read_run(h5::Library& library, const std::string& folder, Detail detail) {
  RunRecord run;
  run.folder = folder;
  const std::string path = results_path(folder);
  if (!fs::exists(path)) {
    throw usage_error("is no run folder: it has no results.h5", folder,
                      "name a folder that dtrain wrote below --output");
  }
  const auto lock = library.lock();
  try {
    const h5::File file = h5::open_file(path, h5::Access::read);
    read_results(file, path, run);
    const Status written = parse_status(run.attributes["status"]).value_or(Status::incomplete);
    run.merged = written != Status::running;
    if (run.merged) {
      read_merged_ranks(file, run, detail);
    } else {
      run.alive = !other_holder(folder).empty();
      read_live_ranks(run, detail);
      if (run.ranks.empty()) run.alive = run.alive || touched_lately(path);  // not yet begun
    }
    run.status = run.merged ? written : read_state(folder).value_or(Status::running);
    if (run.status == Status::running && !run.alive) run.status = Status::incomplete;
  } catch (const Error& error) {
    if (error.code() == ExitCode::data) throw;
    throw data_error(error.problem(), error.subject().empty() ? path : error.subject(),
                     "the file is damaged: take another copy of it");
  }
  return run;
}

}  // namespace dtrain::record
