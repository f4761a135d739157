#pragma once

#include <optional>
#include <string>

#include "comm/survey/binding.hpp"

namespace dtrain::app {

/// What the environment says, read once in main and handed down as a value.
struct Environment {
  std::optional<std::string> slurm_job_id;
  std::optional<int> srun_tasks;            ///< SLURM_STEP_NUM_TASKS, where srun started this process itself.
  std::optional<int> launcher_rank;         ///< Of mpirun or srun's PMI; none when started by hand.
  int launcher_size = 1;                    ///< Processes it started.
  std::string launcher;                     ///< `mpirun`, `srun` or `mpiexec`; empty when started by hand.
  std::optional<int> slurm_tasks;           ///< Of the job around us: SLURM_NTASKS, where it is known,
  std::optional<int> slurm_nodes;           ///< and SLURM_JOB_NUM_NODES.
  bool openmp_waits_are_set = false;        ///< GOMP_SPINCOUNT or OMP_WAIT_POLICY, by the user or by us.
  std::optional<comm::LocalLaunch> mpirun;  ///< Open MPI's, where it started this process.
  std::string switches;                     ///< Above this node, outermost first, where Slurm knows them.
  std::string cache_folder;                 ///< What may be measured again; empty where the user has no home.
  std::string temporary_folder = "/tmp";    ///< TMPDIR
  std::string python;                       ///< DTRAIN_PYTHON; empty: dtrain chooses.
  bool fault_tolerant = false;              ///< mpirun --with-ft ulfm.
  bool terminal = false;                    ///< A person sees standard output as it is written.
};

Environment read_environment();

}  // namespace dtrain::app
