#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace dtrain::comm {

/// Whether a job can go on after a rank died. mpirun --with-ft ulfm sets OMPI_MCA_mpi_ft_enable=1 in the
/// ranks' environment; app reads it, because nobody below app reads the environment.
enum class Recovery { off, on };

/// MPI from start to end: owns initialisation and finalisation. One per process, alive in main around
/// everything else that touches MPI.
class MpiEnvironment {
 public:
  /// Starts MPI with MPI_THREAD_MULTIPLE. Collective over the job. Throws Error when the library cannot.
  MpiEnvironment(int& argc, char**& argv, Recovery recovery = Recovery::off);

  /// Finalises, unless an exception unwinds: finalising would wait for ranks that wait for us. Once a rank
  /// was lost, leave by exit_after_lost_rank() instead.
  ~MpiEnvironment();

  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  /// All ranks that are left: MPI_COMM_WORLD until one was lost.
  MPI_Comm world() const noexcept { return world_; }
  int world_rank() const noexcept { return rank_; }
  int world_size() const noexcept { return size_; }
  /// This rank in MPI_COMM_WORLD, as it was at the start.
  int first_rank() const noexcept { return first_rank_; }

  /// Goes on without the ranks that are gone: from now on world() is of those that are left, in their order.
  /// Every one of them calls it; communicators of before are of no more use. Returns the ranks that are gone,
  /// as they were at the start; none, and nothing has changed, where all are still there.
  /// Throws Error when it takes more than ten seconds.
  std::vector<int> leave_lost_behind();

  /// True when ULFM is on and this library has its functions: peers see a death as an Error of their own
  /// instead of being killed with it.
  bool can_recover() const noexcept { return can_recover_; }

  /// `Open MPI v5.0.11, ...`: one line for the start-up message and for results.h5.
  static std::string library_version();

  /// Ends all ranks of the job, this one with `exit_code`. Called while MPI is alive.
  [[noreturn]] void abort(int exit_code) noexcept;

  bool has_lost_ranks() const noexcept { return world_ != MPI_COMM_WORLD; }

  /// Ends this process after a rank was lost: MPI_Finalize would hang, and the launcher ends everyone at the
  /// first exit code that is not 0. So the survivors meet once more, for at most 5 s, before each exits with
  /// `exit_code`. Without ULFM it is abort(). Flushes standard streams.
  [[noreturn]] void exit_after_lost_rank(int exit_code) noexcept;

 private:
  bool someone_is_gone() const;

  MPI_Comm world_ = MPI_COMM_WORLD;
  int rank_ = 0;
  int size_ = 1;
  int first_rank_ = 0;
  std::vector<int> known_;  // of world(), as they were at the start
  int exceptions_ = 0;
  bool can_recover_ = false;
};

}  // namespace dtrain::comm
