#pragma once

#include <iosfwd>
#include <vector>

#include "report/report_text.hpp"

namespace dtrain::app {

/// The test by the owners of the rows and by the clients of a federated run, and how far these are apart;
/// nothing where there are none.
void print_owners(const ReportedRun& run, std::ostream& out);

/// How many clients have handed in; nothing where there are none.
void print_rounds(const ReportedRun& run, std::ostream& out);

/// What a run with differential privacy has released; nothing of others.
void print_privacy(const record::Table& privacy, std::ostream& out);

/// The accuracy by owner of several runs side by side, and how far they are apart; nothing where no run has
/// owners or clients.
void compare_owners(const std::vector<ReportedRun>& runs, std::ostream& out);

}  // namespace dtrain::app
