#include "parallel/step/balancing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/median.hpp"

namespace dtrain::parallel {

Balancing::Balancing(Facts facts)
    : facts_(std::move(facts)), owned_(even_ownership(facts_.micro_batches, facts_.data_ranks)) {}

void Balancing::step(std::int64_t step, double seconds, std::size_t micro_batches) {
  if (micro_batches > 0) seconds_.push_back(seconds / static_cast<double>(micro_batches));
  if (seconds_.size() > kWindow) seconds_.pop_front();
  if (++waited_ < between_) return;
  waited_ = 0;
  between_ = std::min(2 * between_, kMostBetween);
  compare(step);
}

/// A median: one step that the machine has held up says nothing of the rank.
void Balancing::compare(std::int64_t step) {
  const auto all = facts_.gather(seconds_.empty() ? 0 : median({seconds_.begin(), seconds_.end()}));
  // A rank that had no micro-batch, or an emulated machine that computes in no time, has no speed.
  if (std::ranges::any_of(all, [](double seconds) { return !(seconds > 0); })) return;
  auto wanted = ownership_by_speed(facts_.micro_batches, all);
  const double now_s = slowest_seconds(owned_, all);
  const double then_s = slowest_seconds(wanted, all);
  if (then_s > (1 - kLeastGain) * now_s) return;
  owned_ = std::move(wanted);
  between_ = kWindow;
  std::vector<std::int64_t> counts;
  std::vector<std::string> took;
  for (const auto& of_rank : owned_) counts.push_back(of_rank.size());
  for (const double seconds : all) took.push_back(fmt::format("{:.3g}", 1e3 * seconds));
  const auto first = step + facts_.lead;
  facts_.change(first, owned_,
                fmt::format("from step {} the data ranks compute {} of a step's {} micro-batches, which take "
                            "{} ms each; the slowest has {:.3g} ms to do, before {:.3g} ms",
                            first, fmt::join(counts, ", "), facts_.micro_batches, fmt::join(took, ", "),
                            1e3 * then_s, 1e3 * now_s));
}

}  // namespace dtrain::parallel
