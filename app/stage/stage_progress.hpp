#pragma once

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace dtrain::app {

/// Says what a long command is doing, also while the work itself has nothing new to tell: on a terminal one
/// line that is redrawn, in a file or a pipe a line every few seconds. Commands that are quick say nothing
/// into a file.
class StageProgress {
 public:
  struct Pace {
    double in_place_s = 0.2;
    double lines_s = 5;
  };
  StageProgress(std::FILE* out, bool terminal) : StageProgress(out, terminal, {}) {}
  StageProgress(std::FILE* out, bool terminal, const Pace& pace);
  ~StageProgress();  ///< Leaves the cursor on an empty line.
  StageProgress(const StageProgress&) = delete;
  StageProgress& operator=(const StageProgress&) = delete;

  /// From now on this is being done, and so much of it, in [0, 1], is behind.
  void at(std::string_view what, double fraction);

 private:
  void watch();
  void draw(double now_s);

  std::FILE* out_;
  bool terminal_;
  double pause_s_;
  double begun_s_;
  std::mutex mutex_;
  std::condition_variable over_;
  std::string what_;
  double fraction_ = 0;
  std::size_t drawn_ = 0;  // letters of the line in place
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace dtrain::app
