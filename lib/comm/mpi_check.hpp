#pragma once

#include <cstddef>
#include <string_view>

namespace dtrain::comm {

/// Throws Error with MPI's own text when `code` is not MPI_SUCCESS; exit code 5 when it says that a process
/// is gone. `call` names what was tried, e.g. `MPI_Isend to rank 3`.
void check_mpi(int code, std::string_view call);

/// `count` as the int that MPI's interface wants. Throws Error when it does not fit.
int checked_int(std::size_t count, std::string_view what);

}  // namespace dtrain::comm
