#include "parallel/strategy/spoiled_gradient.hpp"

#include <limits>
#include <span>
#include <vector>

#include "parallel/gradients/non_finite.hpp"

namespace dtrain::parallel {

void SpoiledGradient::report(const StrategyParts& parts, LocalCopy& copy, const StepTotals& total) const {
  constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t first = found() ? step_ : kNever;
  const auto own = first;
  parts.world.all_reduce(comm::Buffer::of(std::span(&first, 1)), comm::ReduceOp::min).wait();
  const std::vector<Range> whole = {{0, copy.parameters().size()}};
  const std::vector<Range> nothing;
  const bool here = own == first;
  report_non_finite(
      parts.world,
      {parts.model, copy.parameters(), here ? gradient_ : copy.gradients(), here ? whole : nothing}, first,
      total);
}

}  // namespace dtrain::parallel
