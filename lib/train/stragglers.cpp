#include "train/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::train {

Stragglers::Stragglers(comm::Group& world)
    : world_(world), is_slow_(static_cast<std::size_t>(world.size()), false) {}

double Stragglers::median(std::span<const double> own_s) {
  std::vector<double> sorted(own_s.begin(), own_s.end());
  std::ranges::sort(sorted);
  const auto n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

std::vector<int> Stragglers::slow(std::span<const double> own_s) {
  std::vector<int> slow;
  if (own_s.size() < 2) return slow;
  // Of two ranks the median lies between them: the faster one is what the slower one is measured by.
  const double usual = own_s.size() == 2 ? std::ranges::min(own_s) : median(own_s);
  for (std::size_t rank = 0; rank < own_s.size(); ++rank) {
    if (own_s[rank] > kSlow * usual && own_s[rank] - usual > kLeastCostS)
      slow.push_back(static_cast<int>(rank));
  }
  return slow;
}

std::vector<double> Stragglers::gathered() {
  std::vector<double> all(is_slow_.size());
  std::span<double> mine(&own_s_, 1);
  world_.all_gather(comm::Buffer::of(mine), comm::Buffer::of(std::span(all))).wait();
  return all;
}

std::vector<std::string> Stragglers::step(std::int64_t step, double own_s) {
  std::vector<std::string> said;
  if (world_.size() == 1) return said;
  if (first_step_ == 0) first_step_ = step;
  own_s_ += own_s;
  if (step % kWindow != 0) return said;
  const auto all = gathered();
  const auto now = slow(all);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool is_slow = std::ranges::find(now, static_cast<int>(rank)) != now.end();
    if (is_slow && !is_slow_[rank]) {
      const double usual = all.size() == 2 ? std::ranges::min(all) : median(all);
      said.push_back(
          fmt::format("rank {} is slow: {:.2f} s of its own in steps {} to {}, the others {:.2f} s; they "
                      "waited about {:.2f} s for it",
                      world_.world_rank_of(static_cast<int>(rank)), all[rank], first_step_, step, usual,
                      all[rank] - usual));
    } else if (!is_slow && is_slow_[rank]) {
      said.push_back(fmt::format("rank {} is as fast as the others again, since step {}",
                                 world_.world_rank_of(static_cast<int>(rank)), first_step_));
    }
    is_slow_[rank] = is_slow;
  }
  own_s_ = 0;
  first_step_ = step + 1;
  return said;
}

}  // namespace dtrain::train
