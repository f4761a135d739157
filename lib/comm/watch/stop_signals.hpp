#pragma once

namespace dtrain::comm {

/// Listens for SIGUSR1, with which Slurm and mpirun announce the end of a job's time, SIGTERM, which mpirun
/// makes of Ctrl-C, and SIGINT, until it goes. A second SIGINT ends the process at once. One at a time.
///
/// mpirun of Open MPI 5 ends its ranks within half a second (PRRTE 3.0.14): it closes the standard input of
/// rank 0 and sends SIGCONT, after a quarter of a second SIGTERM, after another one SIGKILL. So a SIGCONT
/// from mpirun counts where the standard input was open before and is not any more: it doubles the time for a
/// checkpoint. Without that it only says that a suspended job goes on.
class StopSignals {
 public:
  /// A process that `speaks` says at once that it stops: to SIGINT on standard error, to SIGTERM on the
  /// terminal itself where it has one, since mpirun hands nothing on once Ctrl-C was pressed.
  enum class Voice { speaks, silent };
  explicit StopSignals(Voice voice = Voice::speaks);
  ~StopSignals();  ///< Restores the handlers that were there before.
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void speak_as(Voice voice);  ///< From now on.

  /// Whether one has come since this was made. Called at each step, it also sees where the input ends by
  /// itself.
  bool asked() const;
};

}  // namespace dtrain::comm
