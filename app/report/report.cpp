#include "report/report.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <ostream>
#include <system_error>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/own_place.hpp"
#include "record/results_writer.hpp"
#include "record/run_reader.hpp"
#include "report/report_text.hpp"

namespace dtrain::app {
namespace {

namespace fs = std::filesystem;
using record::Detail;
using record::RunRecord;
using record::Status;

/// The folder of a run that may not have begun: says so, and returns when its results are there.
std::string folder_when_it_appears(const std::string& run, double interval_s, std::ostream& out,
                                   const std::function<bool()>& stopped) {
  const bool names_file = fs::path(run).filename() == "results.h5";
  const fs::path results = names_file ? fs::path(run) : fs::path(run) / "results.h5";
  std::error_code ignored;
  if (!fs::exists(results, ignored)) {
    out << "waiting for " << run << " to begin\n";
    out.flush();
  }
  while (!fs::exists(results, ignored) && !(stopped && stopped()))
    std::this_thread::sleep_for(std::chrono::duration<double>(interval_s));
  return folder_of_run(run);
}

// Not only the owner of a run reads its report, and while it may still be needed as it is.
void gather(h5::Library& library, const std::string& folder) {
  const RunRecord run = record::read_run(library, folder, Detail::epochs);
  if (run.merged) return;
  if (run.status == Status::running || run.alive)
    throw usage_error("the run is under way", "--gather " + folder, "wait for its end");
  require_own_folder(folder, {.subject = "--gather " + folder,
                              .advice = "copy the run into a folder of your own first",
                              .code = ExitCode::usage});
  record::finish_interrupted(library, folder, run.status);
}

/// With the newest steps of each rank, or all where ranks are so far apart that those have none in common.
record::RunRecord read_newest(h5::Library& library, const std::string& folder) {
  auto run = record::read_run(library, folder, Detail::newest_steps);
  const auto newest = newest_step(run);
  return newest && !newest->of_all ? record::read_run(library, folder, Detail::steps) : run;
}

ReportedRun load(h5::Library& library, const std::string& folder) {
  ReportedRun run;
  run.record = record::read_run(library, folder, Detail::epochs);
  // Where epochs do not tell how far it came, the steps do: the newest, and of a rank without epochs all.
  const bool by_epoch = std::ranges::none_of(
      run.record.ranks, [](const record::RankRecord& rank) { return rank.epochs.rows == 0; });
  if (run.record.status != Status::completed)
    run.record = by_epoch ? read_newest(library, folder) : record::read_run(library, folder, Detail::steps);
  run.summary = summarize(run.record);
  return run;
}

/// What following looks at each second: of a long run not all of its steps.
ReportedRun load_newest(h5::Library& library, const std::string& folder) {
  ReportedRun run;
  run.record = read_newest(library, folder);
  run.summary = summarize(run.record);
  return run;
}

// Runs of one name are told apart by their folders.
void name_apart(std::vector<ReportedRun>& runs) {
  std::map<std::string, int> count;
  for (const ReportedRun& run : runs) ++count[run.summary.name];
  for (ReportedRun& run : runs) {
    if (count[run.summary.name] > 1) run.summary.name = run.record.folder;
  }
}

void follow(h5::Library& library, const std::string& folder, const ReportOptions& options, std::ostream& out,
            const std::function<bool()>& stopped) {
  ReportedRun run = load_newest(library, folder);
  if (run.record.status != Status::running) return print_run(load(library, folder), out);
  print_heading(run, out);
  out << '\n';
  std::size_t printed = 0;
  std::int64_t said_step = 0;
  double said_s = steady_s();
  for (;; run = load_newest(library, folder)) {
    if (run.record.epochs.rows > printed) {
      print_epochs(run, printed, out);
      printed = run.record.epochs.rows;
      out.flush();
      said_s = steady_s();
    }
    const auto step = newest_step(run.record);
    if (step && step->step > said_step && steady_s() - said_s >= options.step_interval_s) {
      print_step(run, *step, out);
      out.flush();
      said_step = step->step;
      said_s = steady_s();
    }
    if (run.record.status != Status::running || (stopped && stopped())) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.follow_interval_s));
  }
  out << '\n';
  print_run(load(library, folder), out);
}

}  // namespace

std::string folder_of_run(const std::string& run) {
  fs::path path(run);
  if (path.filename() == "results.h5") path = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (path.filename().empty()) path = path.parent_path();
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    throw usage_error("there is no such folder", run, "name the folder of a run, OUTPUT/NAME");
  }
  return path.string();
}

void report(h5::Library& library, const ReportOptions& options, std::ostream& out,
            const std::function<bool()>& stopped) {
  if (options.runs.empty()) {
    throw usage_error("no run is named", "dtrain report", "name one or more run folders, OUTPUT/NAME");
  }
  const bool alone = options.runs.size() == 1 && !options.csv && !options.compare;
  if (options.follow && !alone)
    throw usage_error("follows one run, as text", "--follow", "leave --csv, --compare and other runs out");
  std::vector<std::string> folders;
  const bool follows_one = options.follow && !options.gather;
  for (const std::string& run : options.runs)
    folders.push_back(follows_one ? folder_when_it_appears(run, options.follow_interval_s, out, stopped)
                                  : folder_of_run(run));
  if (options.gather)
    for (const std::string& folder : folders) gather(library, folder);
  if (options.follow) {
    follow(library, folders.front(), options, out, stopped);
    return;
  }
  std::vector<ReportedRun> runs;
  for (const std::string& folder : folders) runs.push_back(load(library, folder));
  name_apart(runs);
  if (options.csv) {
    (options.compare ? print_comparison_csv : print_epochs_csv)(runs, out);
    return;
  }
  if (options.compare) {
    print_comparison(runs, out);
    return;
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) out << "\n\n";
    print_run(runs[i], out);
  }
}

}  // namespace dtrain::app
