#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace dtrain::train {

/// Where a run stands; what the progress line shows.
struct ProgressState {
  int epoch = 1;  ///< Counts from 1.
  int epochs = 1;
  std::int64_t step = 0;   ///< Of this epoch, counts from 1.
  std::int64_t steps = 1;  ///< In this epoch.
  double loss = 0.0;       ///< Mean over the epoch so far.
  double samples_per_s = 0.0;
  double seconds_left = 0.0;  ///< Until the last epoch ends, evaluation not counted.
};

/// `epoch 2/10 [####......] 45 %  loss 0.1234  12345 samples/s  0:03 left`; at most 100 columns.
std::string progress_text(const ProgressState& state);

/// The line on rank 0's terminal, redrawn in place at most ten times a second. Where no terminal is watched
/// nothing is drawn: plain lines per epoch say it all.
class ProgressLine {
 public:
  enum class Style { in_place, none };
  ProgressLine(std::FILE* out, Style style) : out_(out), style_(style) {}
  void show(const ProgressState& state);
  void clear();  ///< Before another line is printed.

  bool visible() const { return style_ == Style::in_place; }

 private:
  std::FILE* out_;
  Style style_;
  double last_s_ = 0.0;
  bool drawn_ = false;
};

}  // namespace dtrain::train
