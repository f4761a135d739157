#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// Deals the micro-batches of some steps one by one, in order, to copies that work at their own pace; each
/// once. None of step s is dealt before all of the steps below s - staleness have been applied: no copy is
/// further ahead of the slowest than that (stale-synchronous parallel). A copy that is slow has fewer of
/// them.
///
/// So an update of step s meets parameters that lack at most those of steps [s - staleness, s + staleness]:
/// at most most_late() others have come between. Source: Ho et al., "More effective distributed ML via a
/// stale synchronous parallel parameter server", NIPS 2013.
class Dealing {
 public:
  /// `micro_batches`: of each step. `staleness`: in steps, 0 or more.
  Dealing(const WorkRange& steps, int micro_batches, int staleness);

  /// The next micro-batch; empty: none may be dealt now, or none is left.
  std::optional<WorkUnit> deal();
  /// All have been dealt.
  bool exhausted() const { return next_.step > steps_.last; }
  /// The update of a micro-batch has been applied. Throws Error where it was not dealt, or twice.
  void applied(const WorkUnit& unit);
  /// All have been applied.
  bool done() const { return oldest_ > steps_.last; }

  /// The first step of which an update is missing.
  std::int64_t oldest() const { return oldest_; }

  /// The most updates that may come between an update's parameters and it.
  static std::int64_t most_late(int micro_batches, int staleness) {
    return std::int64_t{2 * staleness + 1} * micro_batches - 1;
  }

 private:
  std::size_t index(const WorkUnit& unit) const;

  WorkRange steps_;
  int micro_batches_;
  int staleness_;
  WorkUnit next_;
  std::int64_t oldest_;
  std::vector<bool> applied_;         // [steps x micro-batches]
  std::vector<int> missing_of_step_;  // [steps]
};

}  // namespace dtrain::parallel
