#include "comm/watch/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/median.hpp"

namespace dtrain::comm {
namespace {

/// Of two ranks the median lies between them: the faster one is what the slower one is measured by.
double usual(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return values.size() == 2 ? std::ranges::min(values) : median(values);
}

}  // namespace

Stragglers::Stragglers(Group& world)
    : world_(world), is_slow_(static_cast<std::size_t>(world.size()), false) {}

std::vector<Stragglers::Slow> Stragglers::slow(std::span<const Own> all) {
  std::vector<double> seconds;
  std::vector<double> per_sample;
  for (const Own& own : all) {
    seconds.push_back(own.seconds);
    if (own.samples > 0) per_sample.push_back(own.seconds / own.samples);
  }
  std::vector<Slow> slow;
  if (all.size() < 2) return slow;
  const double usual_s = usual(seconds);
  const double usual_per_sample = usual(per_sample);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const double wanted_s = std::max(usual_s, usual_per_sample * all[rank].samples);
    if (all[rank].seconds > kSlow * wanted_s && all[rank].seconds - wanted_s > kLeastCostS)
      slow.push_back({static_cast<int>(rank), wanted_s});
  }
  return slow;
}

std::vector<Stragglers::Own> Stragglers::gathered() {
  std::vector<double> all(2 * is_slow_.size());
  std::array<double, 2> mine = {own_.seconds, own_.samples};
  world_.all_gather(Buffer::of(std::span<double>(mine)), Buffer::of(std::span(all))).wait();
  std::vector<Own> owns;
  for (std::size_t rank = 0; rank < is_slow_.size(); ++rank)
    owns.push_back({all[2 * rank], all[2 * rank + 1]});
  return owns;
}

std::vector<std::string> Stragglers::step(std::int64_t step, const Own& own, bool meets) {
  std::vector<std::string> said;
  if (world_.size() == 1) return said;
  if (first_step_ == 0) first_step_ = step;
  own_.seconds += own.seconds;
  own_.samples += own.samples;
  is_full_ = is_full_ || step % kWindow == 0;
  if (!is_full_ || !meets) return said;
  is_full_ = false;
  const auto all = gathered();
  const auto now = slow(all);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto place = std::ranges::find(now, static_cast<int>(rank), &Slow::index);
    const bool is_slow = place != now.end();
    if (is_slow && !is_slow_[rank]) {
      said.push_back(
          fmt::format("rank {} is slow: {:.2f} s of its own in steps {} to {}, the others {:.2f} s; they "
                      "waited about {:.2f} s for it",
                      world_.world_rank_of(static_cast<int>(rank)), all[rank].seconds, first_step_, step,
                      place->usual_s, all[rank].seconds - place->usual_s));
    } else if (!is_slow && is_slow_[rank]) {
      said.push_back(fmt::format("rank {} is as fast as the others again, since step {}",
                                 world_.world_rank_of(static_cast<int>(rank)), first_step_));
    }
    is_slow_[rank] = is_slow;
  }
  own_ = {};
  first_step_ = step + 1;
  return said;
}

}  // namespace dtrain::comm
