#pragma once

#include <exception>

#include "comm/mpi/communicator.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"

namespace dtrain::app {

/// Of any exception: an Error's own code, otherwise failure.
ExitCode exit_code(const std::exception& error);

/// An Error as it is; any other exception in our words, with this exit code.
Error as_error(const std::exception& error, ExitCode code = ExitCode::failure);

/// How a job ends after an error on this rank. When all ranks fail (a usage or data error, found by every
/// rank alike) each different sentence is printed once, and the function returns: MPI can be finalised and
/// the process end with the code returned, the highest of all. When other ranks do not arrive within a few
/// seconds they wait for us in a collective: the sentence is printed with our rank, and all are aborted.
/// After a rank was lost no rank waits for it: the survivors leave together, and each different sentence is
/// printed once. `errors` is a communicator of all ranks that is used for nothing else.
int settle_failure(const std::exception& error, const comm::Communicator& errors, comm::MpiEnvironment& mpi);

}  // namespace dtrain::app
