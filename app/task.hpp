#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/start_notice.hpp"
#include "environment.hpp"

namespace dtrain::app {

/// A command line that was understood, ready to be carried out: exactly one of the two is set.
struct Task {
  std::function<ExitCode()> alone;  ///< Needs no MPI; done by one process.
  /// What `alone` reads is from elsewhere: it is done by a process of its own, whose fault is this error.
  std::optional<ErrorContext> elsewhere = {};
  std::function<ExitCode(comm::MpiEnvironment&)> together;  ///< Done by all ranks.
  double start_limit_s = 300;                               ///< For MPI to start.
  std::optional<int> threads;  ///< Compute threads of each rank, 0: by its mask; nothing: it has none.
  std::shared_ptr<StartNotice> starting;  ///< What says that a start takes long; null: nothing does.
};

using Words = std::vector<std::string>;  ///< The command line behind the command's name.

/// Prints `text` to standard output and is done.
Task print_task(std::string text);

}  // namespace dtrain::app
