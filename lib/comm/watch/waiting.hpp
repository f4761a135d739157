#pragma once

#include <mpi.h>

#include <string_view>

#include "core/clock.hpp"
#include "core/running_time.hpp"

namespace dtrain::comm {

/// A wait of one thread for other ranks: it looks, pauses and looks again, until they have come or the limit
/// has passed. Time in which this process was suspended does not count.
class Waiting {
 public:
  /// `limit_s`: 0: none. `longest_pause_s`: how late a look may come.
  explicit Waiting(double limit_s, double longest_pause_s = 1e-3);

  /// Gives the core to others until the next look: at first only for a moment. False when the limit has
  /// passed.
  bool pause();
  double waited_s() const { return waited_s_; }

 private:
  double limit_s_;
  double longest_pause_s_;
  RunningTime time_;
  double waited_s_ = 0;
};

/// Looks for ranks that are gone while one waits for others: a message from a rank that lives, and waits for
/// the lost one in its turn, never fails.
class LossWatch {
 public:
  LossWatch(MPI_Comm comm, std::string_view what) : comm_(comm), what_(what) {}
  /// Throws Error (exit code 5) when MPI knows of one. Limits its own cost.
  void look();

 private:
  MPI_Comm comm_;
  std::string_view what_;
  double next_s_ = steady_s() + kLossLookS;
  static constexpr double kLossLookS = 0.01;
};

}  // namespace dtrain::comm
