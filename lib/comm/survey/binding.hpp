#pragma once

#include <string>
#include <vector>

namespace dtrain::comm {

/// The cores of this process's affinity mask, ascending.
std::vector<int> affinity_mask();

/// What mpirun started on this node.
struct LocalLaunch {
  int ranks = 1;  ///< In the job.
  int local_rank = 0;
  int local_size = 1;
};

/// Open MPI's mpirun binds each rank of a job of one or two to a single core unless it is told otherwise
/// (mpirun's manual, `--bind-to`), where threads and the loader would share that core. This gives such a
/// process its equal share of the cores that its launcher may use, and the threads it starts from now on
/// inherit that. Does nothing where there are more ranks, where a rank has more than one core, where the
/// launcher was told how to bind, or where the share is no more than it has. Returns the cores after that.
/// Call it before threads start.
std::vector<int> widen_default_binding(const LocalLaunch& launch);

/// Whether a launcher's words, or what it was set to in the environment, say how to bind.
bool names_a_binding(const std::vector<std::string>& launcher_words);

}  // namespace dtrain::comm
