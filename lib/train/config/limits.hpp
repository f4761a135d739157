#pragma once

namespace dtrain::train {

/// What `--watchdog inf` stands for, in seconds: 30 years are no limit, and clocks can count them.
inline constexpr double kNoLimit_s = 1e9;

// More than any machine of today has a use for; what is beyond is a mistake that would take its memory.
inline constexpr int kMostThreads = 1024;
inline constexpr int kLargestBatch = 1 << 24;
inline constexpr int kMostPieces = 1 << 20;
inline constexpr int kMostStagesOfARank = 1024;
inline constexpr int kLongestName = 200;  ///< Of a run.

}  // namespace dtrain::train
