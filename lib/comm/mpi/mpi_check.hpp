#pragma once

#include <mpi.h>

#include <cstddef>
#include <string_view>

#include "core/error.hpp"

namespace dtrain::comm {

/// What a library of communication says went wrong. The cause may be a rank that is gone, of which that
/// library knows nothing yet.
class LibraryError : public Error {
 public:
  using Error::Error;
};

/// For a library to learn of a death that has made a call of it fail.
constexpr double kNoticeS = 1.0;

/// Throws Error with MPI's own text when `code` is not MPI_SUCCESS; exit code 5 when it says that a process
/// is gone. `call` names what was tried, e.g. `MPI_Isend to rank 3`.
void check_mpi(int code, std::string_view call);
/// The same for a call on `comm`. Whatever MPI says, the exit code is 5 when a rank of `comm` is gone, which
/// MPI has kNoticeS to learn.
void check_mpi(int code, std::string_view call, MPI_Comm comm);

/// Throws Error (exit code 5) when a rank of `comm` is gone, which MPI has `within_s` to learn.
void check_losses(MPI_Comm comm, std::string_view call, double within_s = kNoticeS);

/// `count` as the int that MPI's interface wants. Throws Error when it does not fit.
int checked_int(std::size_t count, std::string_view what);

}  // namespace dtrain::comm
