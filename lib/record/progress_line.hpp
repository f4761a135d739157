#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace dtrain::record {

/// Where a run stands; what the progress line shows.
struct ProgressState {
  int epoch = 1;  ///< Counts from 1.
  int epochs = 1;
  std::int64_t step = 0;       ///< Of this epoch, counts from 1.
  std::int64_t steps = 1;      ///< In this epoch.
  std::int64_t run_step = 0;   ///< Of the run, counts from 1.
  std::int64_t run_steps = 1;  ///< In the run.
  double loss = 0.0;           ///< Mean over the epoch so far.
  double samples_per_s = 0.0;
  double seconds_left = 0.0;  ///< Until the last epoch ends, evaluation not counted.
};

/// How fast steps go: those of the epoch so far, and of the one before, since the first steps of an epoch say
/// little.
class StepPace {
 public:
  void begin_epoch() { before_ = std::exchange(here_, {}); }
  /// What of this epoch is done. `steps` above 0, `elapsed_s` too.
  void epoch_so_far(std::int64_t steps, std::int64_t samples, double elapsed_s) {
    here_ = {static_cast<double>(steps), static_cast<double>(samples), elapsed_s};
  }
  double step_s() const { return (before_.s + here_.s) / (before_.steps + here_.steps); }
  double samples_per_s() const { return (before_.samples + here_.samples) / (before_.s + here_.s); }

 private:
  struct Done {
    double steps = 0;
    double samples = 0;
    double s = 0;
  };
  Done before_;
  Done here_;
};

/// `epoch 2/10 [####......] 45 %  loss 0.1234  12345 samples/s  0:03 left`; at most 100 columns.
std::string progress_text(const ProgressState& state);

/// `step 120/4220  epoch 2/10  45 %  loss 0.1234  12345 samples/s  0:03 left`, the share being the epoch's.
std::string progress_line(const ProgressState& state);

/// Where a run stands, on rank 0's standard output. On a terminal one line is redrawn in place, at most ten
/// times a second. In a file or a pipe lines follow one another: after some seconds the first, the others
/// less often the longer the run takes.
class ProgressLine {
 public:
  enum class Style { in_place, lines, none };
  /// Seconds from one line to the next: a twentieth of the time so far, but within these.
  struct Pace {
    double least_s = 5;
    double most_s = 60;
  };
  ProgressLine(std::FILE* out, Style style) : ProgressLine(out, style, {}) {}
  ProgressLine(std::FILE* out, Style style, const Pace& pace);
  void show(const ProgressState& state);
  void clear();  ///< Before another line is printed.

  bool visible() const { return style_ != Style::none; }

 private:
  std::FILE* out_;
  Style style_;
  Pace pace_;
  double begun_s_;
  double last_s_;
  bool drawn_ = false;
};

}  // namespace dtrain::record
