#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/group.hpp"

namespace dtrain::comm {

/// Finds ranks that keep the others waiting while the run goes on. A rank's own time is what it spends in a
/// step outside of waits; each window of steps all ranks compare theirs, and what each sample took: micro-
/// batches that cannot be dealt evenly make no rank slow.
class Stragglers {
 public:
  /// Of one rank in a window.
  struct Own {
    double seconds = 0;
    double samples = 0;
  };
  struct Slow {
    int index = 0;
    double usual_s = 0;  ///< What the others would have taken, or took.
    bool operator==(const Slow&) const = default;
  };

  static constexpr std::int64_t kWindow = 20;  ///< Steps.
  static constexpr double kSlow = 1.25;        ///< Times what is usual for as many samples.
  static constexpr double kLeastCostS = 0.1;   ///< That a window must have lost: less is noise.

  /// `world`: borrowed.
  explicit Stragglers(Group& world);

  /// Adds what this rank took for its samples in `step`. At the end of a window: a sentence on each rank that
  /// has become slow, with what it cost, and on each that is no longer; the same on all ranks. Collective
  /// then. `meets`: whether the ranks wait for each other after this step; a window ends with such a step.
  std::vector<std::string> step(std::int64_t step, const Own& own, bool meets = true);

  /// The slow ones; none that costs less than kLeastCostS.
  static std::vector<Slow> slow(std::span<const Own> all);

 private:
  std::vector<Own> gathered();

  Group& world_;
  Own own_;
  std::int64_t first_step_ = 0;  // of the window; 0: none has come
  bool is_full_ = false;         // the window ends with the next step that ranks meet after
  std::vector<bool> is_slow_;
};

}  // namespace dtrain::comm
