#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/error.hpp"

namespace dtrain::comm {

/// Ends the process when it is not destroyed in time: a wait that cannot be left would last for ever when a
/// rank hangs. Time in which this process was suspended does not count.
class Deadline {
 public:
  /// `what` (`the start of MPI`) is said to have taken too long when the process ends with `code`.
  Deadline(double limit_s, const std::string& what, ExitCode code = ExitCode::lost_rank);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread guard_;  // last: it uses the others
};

}  // namespace dtrain::comm
