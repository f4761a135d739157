#include "parallel/strategy/servers/dealing.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace dtrain::parallel {

Dealing::Dealing(const WorkRange& steps, int micro_batches, int staleness)
    : steps_(steps),
      micro_batches_(micro_batches),
      staleness_(staleness),
      next_{.step = steps.first},
      oldest_(steps.first) {
  const auto count = static_cast<std::size_t>(steps.last - steps.first + 1);
  applied_.resize(count * static_cast<std::size_t>(micro_batches), false);
  missing_of_step_.resize(count, micro_batches);
}

std::size_t Dealing::index(const WorkUnit& unit) const {
  return static_cast<std::size_t>((unit.step - steps_.first) * micro_batches_ + unit.micro_batch);
}

std::optional<WorkUnit> Dealing::deal() {
  if (exhausted() || next_.step - staleness_ > oldest_) return std::nullopt;
  const WorkUnit unit = next_;
  if (++next_.micro_batch == micro_batches_) next_ = {.step = next_.step + 1};
  return unit;
}

void Dealing::applied(const WorkUnit& unit) {
  const bool there = unit.step >= steps_.first && unit.step <= steps_.last && unit.micro_batch >= 0 &&
                     unit.micro_batch < micro_batches_;
  const bool dealt =
      there && (unit.step < next_.step || (unit.step == next_.step && unit.micro_batch < next_.micro_batch));
  require(dealt && !applied_[index(unit)],
          fmt::format("micro-batch {} of step {} was {}", unit.micro_batch, unit.step,
                      dealt ? "applied before" : "not dealt"),
          {.subject = "an update", .advice = "report this as a bug"});
  applied_[index(unit)] = true;
  --missing_of_step_[static_cast<std::size_t>(unit.step - steps_.first)];
  while (!done() && missing_of_step_[static_cast<std::size_t>(oldest_ - steps_.first)] == 0) ++oldest_;
}

}  // namespace dtrain::parallel
