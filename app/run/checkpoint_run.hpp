#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/mpi/mpi_environment.hpp"
#include "core/log.hpp"
#include "environment.hpp"
#include "task.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

class Parser;

/// What commands that run a checkpoint's model on all ranks take besides the checkpoint: which dataset, and
/// on what the ranks compute.
struct CheckpointRun {
  std::string folder;  ///< The checkpoint's.
  std::string dataset;
  std::string data_root;
  std::vector<std::string> plugins;
  std::string mesh;
  std::string device;
  int threads = -1;     ///< Negative: as by default.
  int eval_batch = -1;  ///< The same.

  /// Declares the options. `about_dataset`: the help of `--dataset`. Borrows this.
  void bind(Parser& parser, const std::string& about_dataset);

  using Action = std::function<void(const train::RunConfig&, comm::MpiEnvironment&, const Log&)>;
  /// Does `action` on all ranks with the checkpoint's configuration. Throws Error as config_of_checkpoint().
  Task task(const Environment& environment, const Action& action) const;
};

}  // namespace dtrain::app
