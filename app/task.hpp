#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/mpi_environment.hpp"
#include "core/error.hpp"
#include "environment.hpp"

namespace dtrain::app {

/// A command line that was understood, ready to be carried out: exactly one of the two is set.
struct Task {
  std::function<ExitCode()> alone;                          ///< Needs no MPI; done by one process.
  std::function<ExitCode(comm::MpiEnvironment&)> together;  ///< Done by all ranks.
  double start_limit_s = 300;                               ///< For MPI to start.
};

using Words = std::vector<std::string>;  ///< The command line behind the command's name.

/// Prints `text` to standard output and is done.
Task print_task(std::string text);

}  // namespace dtrain::app
