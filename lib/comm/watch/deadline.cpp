#include "comm/watch/deadline.hpp"

#include <unistd.h>

#include <chrono>
#include <iostream>

#include "core/running_time.hpp"

namespace dtrain::comm {

Deadline::Deadline(double limit_s, const std::string& what, ExitCode code)
    : guard_([this, limit_s, what, code] {
        const double look_s = RunningTime::gap_for(limit_s) / 2;
        RunningTime time(2 * look_s);
        std::unique_lock lock(mutex_);
        while (time.look() <= limit_s) {
          if (changed_.wait_for(lock, std::chrono::duration<double>(look_s), [this] { return done_; }))
            return;
        }
        std::cerr << "dtrain: " << what << " took more than " << limit_s
                  << " s: a rank does not come; look at the other ranks' output" << std::endl;
        ::_exit(static_cast<int>(code));
      }) {}

Deadline::~Deadline() {
  {
    const std::scoped_lock lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  guard_.join();
}

}  // namespace dtrain::comm
