#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::comm {

class Communicator;

/// The cores of this process's affinity mask, ascending.
std::vector<int> affinity_mask();

/// What mpirun started on this node.
struct LocalLaunch {
  int ranks = 1;  ///< In the job.
  int local_rank = 0;
  int local_size = 1;
};

/// Of these hardware threads those of each core, neighbouring cores beside each other.
std::vector<std::vector<int>> cores_of(const std::vector<int>& cpus);

/// Open MPI's mpirun binds each rank of a job of one or two to a single core unless it is told otherwise
/// (mpirun's manual, `--bind-to`), where threads and the loader would share that core. This gives such a
/// process its equal share of the cores that its launcher may use, and the threads it starts from now on
/// inherit that. Does nothing where there are more ranks, where a rank has more than one core, where the
/// launcher was told how to bind, or where the share is no more than it has.
///
/// Only a rank beside mpirun sees what that was told: on a further node a daemon of mpirun's is the parent.
/// There a rank waits for settle(), and keeps its core where no rank sees mpirun.
class DefaultBinding {
 public:
  /// Widens where the rank sees mpirun. Call it before threads start.
  explicit DefaultBinding(const LocalLaunch& launch);

  /// The cores that this process has, or may come to have by settle().
  std::vector<int> most_cores() const;

  /// Widens on further nodes if a rank beside mpirun says that nothing speaks against it. Collective over
  /// `world`, all ranks of the job. Call it before threads start that compute. Returns whether this rank
  /// keeps one core though there are more, since no rank sees mpirun.
  bool settle(const Communicator& world);

 private:
  enum class Said : std::int64_t { not_seen, nothing, how_to_bind };  // the largest counts

  void widen() const;

  Said mpirun_ = Said::not_seen;
  bool few_ranks_ = false;  // mpirun binds them to cores
  std::vector<int> share_;  // empty: no more than it has
};

/// Whether a launcher's words, or what it was set to in the environment, say how to bind.
bool names_a_binding(const std::vector<std::string>& launcher_words);

}  // namespace dtrain::comm
