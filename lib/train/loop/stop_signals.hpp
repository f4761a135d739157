#pragma once

namespace dtrain::train {

/// Listens for SIGUSR1, with which Slurm and mpirun announce the end of a job's time, SIGTERM, and SIGINT
/// (Ctrl-C), until it goes. A second SIGINT ends the process at once. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();  ///< Restores the handlers that were there before.
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one has come since this was made.
  bool asked() const;
};

}  // namespace dtrain::train
