#pragma once

#include <optional>
#include <string>

#include "comm/binding.hpp"

namespace dtrain::app {

/// What the environment says, read once in main and handed down as a value.
struct Environment {
  std::optional<std::string> slurm_job_id;
  std::optional<int> srun_tasks;            ///< SLURM_STEP_NUM_TASKS, where srun started this process itself.
  std::optional<int> launcher_rank;         ///< Of mpirun or srun's PMI; none when started by hand.
  int launcher_size = 1;                    ///< Processes it started.
  std::optional<comm::LocalLaunch> mpirun;  ///< Open MPI's, where it started this process.
  bool fault_tolerant = false;              ///< mpirun --with-ft ulfm.
  std::string switches;                     ///< Above this node, outermost first, where Slurm knows them.
  std::string cache_folder;                 ///< What may be measured again; empty where the user has no home.
  bool terminal = false;                    ///< A person sees standard output as it is written.
};

Environment read_environment();

}  // namespace dtrain::app
