#pragma once

#include "environment.hpp"

namespace dtrain::app {

/// Open MPI, started without a launcher, makes a folder in TMPDIR whose name others can foretell; it follows
/// a link that they have laid there, and ends by a signal where it may not enter. So where others may write
/// to TMPDIR, a folder of this user's own in it becomes TMPDIR. Before MPI is initialised.
void keep_session_folder_from_others(const Environment& environment);

}  // namespace dtrain::app
