#pragma once

#include <cstddef>
#include <iosfwd>
#include <vector>

#include "record/run_reader.hpp"
#include "report/report_summary.hpp"

namespace dtrain::app {

/// A run and what was computed from it.
struct ReportedRun {
  record::RunRecord record;
  RunSummary summary;
};

// Parts of the text report, each ending with a newline.
void print_heading(const ReportedRun& run, std::ostream& out);
/// Rows of /epochs from `first` on; headings above the first row only, so that a followed run gives one
/// table.
void print_epochs(const ReportedRun& run, std::size_t first, std::ostream& out);
/// `step 1,234 of epoch 2: loss 0.1234, 0.012 s`, the newest of `run`
void print_step(const ReportedRun& run, const NewestStep& step, std::ostream& out);
void print_test(const record::Table& test, std::ostream& out);
void print_ranks(const ReportedRun& run, std::ostream& out);
void print_phases(const ReportedRun& run, std::ostream& out);
void print_slow_ranks(const ReportedRun& run, std::ostream& out);
void print_events(const ReportedRun& run, std::ostream& out);

/// All of them.
void print_run(const ReportedRun& run, std::ostream& out);

/// Several runs, one line each, their losses by epoch side by side, and the options in which they differ.
void print_comparison(const std::vector<ReportedRun>& runs, std::ostream& out);

// The same as comma-separated values (RFC 4180), NaN as an empty field, first column `run`.
void print_epochs_csv(const std::vector<ReportedRun>& runs, std::ostream& out);
void print_comparison_csv(const std::vector<ReportedRun>& runs, std::ostream& out);

}  // namespace dtrain::app
