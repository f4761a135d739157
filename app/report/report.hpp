#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "h5/library.hpp"

namespace dtrain::app {

/// What `dtrain report RUN... [--compare] [--csv] [--follow]` asks for.
struct ReportOptions {
  std::vector<std::string> runs;  ///< Run folders, or their results.h5; at least one.
  bool compare = false;           ///< One line per run instead of one report after the other.
  bool csv = false;               ///< The rows of /epochs (with --compare: the summary), comma-separated.
  bool follow = false;  ///< Waits for the run to begin and prints new epochs, and between them steps,
                        ///< as they come until it has ended. One run only.
  bool gather = false;  ///< First copies the ranks' files of a run that died into its results.h5.
  double follow_interval_s = 1;  ///< Between two looks.
  double step_interval_s = 5;    ///< Between two lines, with follow, where no epoch ends meanwhile.
};

/// `runs/mlp` for runs/mlp, runs/mlp/ and runs/mlp/results.h5. Throws Error (exit code 2) where it is no
/// folder.
std::string folder_of_run(const std::string& run);

/// Prints the report of finished, running and killed runs to `out` and, without `gather`, writes nothing;
/// text is at most 100 columns wide. Returns when everything is printed (with follow: when the run has ended
/// or `stopped` says so, which may be empty). Throws Error: exit code 2 when an option does not fit or a
/// folder is no run, 3 when a results file is damaged or of another version.
void report(h5::Library& library, const ReportOptions& options, std::ostream& out,
            const std::function<bool()>& stopped = {});

}  // namespace dtrain::app
