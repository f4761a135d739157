#pragma once

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dtrain {

/// Says what a start is busy with where it takes long, as it does with many ranks on few cores: a line after
/// a few seconds, then one at least every 10 s, and at the end where the time went. A start that is quick
/// says nothing. For one rank of a job.
class StartNotice {
 public:
  struct Patience {
    double first_s = 3;    ///< From the start of the process to the first line.
    double next_s = 8;     ///< From one line to the next; a busy machine may take two more.
    double least_s = 0.5;  ///< Of a part of the start, for the line at the end to name it.
  };

  /// `starter`: what starts, as `100 ranks, 2 cores here`.
  explicit StartNotice(std::string starter, std::FILE* out = stdout)
      : StartNotice(std::move(starter), out, {}) {}
  StartNotice(std::string starter, std::FILE* out, const Patience& patience);
  ~StartNotice();
  StartNotice(const StartNotice&) = delete;
  StartNotice& operator=(const StartNotice&) = delete;

  void at(std::string stage);  ///< What is done from now on, as `MPI connects the ranks`.
  void done();                 ///< The start is over; nothing is said any more.

 private:
  struct Stage {
    std::string name;
    double since_s;  // of the process
  };
  void watch(const Patience& patience);
  std::string summary(double now_s) const;

  std::string starter_;
  std::FILE* out_;
  double least_s_;
  std::mutex mutex_;
  std::condition_variable over_;
  std::vector<Stage> stages_;
  bool is_over_ = false;
  bool has_spoken_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace dtrain
