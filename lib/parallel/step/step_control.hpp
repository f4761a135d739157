#pragma once

#include <memory>

#include "comm/group.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// The one small all_reduce that ends the communication of each step. No rank updates its parameters before
/// it has completed: a step is applied by all ranks or by none.
class StepControl {
 public:
  /// Collective: allocates memory shared by the group.
  explicit StepControl(comm::Group& group);

  struct Agreed {
    StepTotals totals;
    StepRequests requests;
    double next_weight = 0;
  };
  /// The sums over all ranks. `next_weight`: of samples whose other totals are not known yet. Collective and
  /// blocking; every rank gets the same bits.
  Agreed agree(const StepTotals& own, const StepRequests& requests = {}, double next_weight = 0);

 private:
  static constexpr std::size_t kFields = 14;
  comm::Group& group_;
  std::unique_ptr<comm::SharedBuffer> memory_;
};

}  // namespace dtrain::parallel
