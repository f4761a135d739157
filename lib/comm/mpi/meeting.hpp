#pragma once

#include <mpi.h>

#include <string_view>

namespace dtrain::comm {

constexpr double kLookS = 200e-6;

/// Returns when all ranks of `comm` have come to the same call, so that what they do together next is not
/// kept waiting. Collective over `comm`. Throws Error, on all that have come: of the ranks that have not come
/// within `limit_s` (0: no limit; exit code 5), or of a rank that has come to another call than `what`.
/// `pause_s`: the longest between two looks.
void meet(MPI_Comm comm, std::string_view what, double limit_s, double pause_s = kLookS);

}  // namespace dtrain::comm
