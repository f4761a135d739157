#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/group.hpp"

namespace dtrain::train {

/// Finds ranks that keep the others waiting while the run goes on. A rank's own time is what it spends in a
/// step outside of waits; each window of steps all ranks compare theirs.
class Stragglers {
 public:
  static constexpr std::int64_t kWindow = 20;  ///< Steps.
  static constexpr double kSlow = 1.25;        ///< Times the median own time of all ranks.
  static constexpr double kLeastCostS = 0.1;   ///< That a window must have lost: less is noise.

  /// `world`: borrowed.
  explicit Stragglers(comm::Group& world);

  /// Adds this rank's own seconds in `step`. At the end of a window: a sentence on each rank that has become
  /// slow, with what it cost, and on each that is no longer; the same on all ranks. Collective then.
  std::vector<std::string> step(std::int64_t step, double own_s);

  /// Indices of slow ones; none where all together lose less than kLeastCostS.
  static std::vector<int> slow(std::span<const double> own_s);
  static double median(std::span<const double> own_s);

 private:
  std::vector<double> gathered();

  comm::Group& world_;
  double own_s_ = 0;
  std::int64_t first_step_ = 0;  // of the window; 0: none has come
  std::vector<bool> is_slow_;
};

}  // namespace dtrain::train
