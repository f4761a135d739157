#include "comm/emulation/virtual_clock.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace dtrain::comm {
namespace {

double tree_levels(int nodes) { return std::bit_width(static_cast<unsigned>(nodes - 1)); }

}  // namespace

void VirtualClock::receive(int from, double sent_s, double bytes) {
  now_s_ = std::max(now_s_, sent_s + fabric_.link(from, rank_).seconds(bytes));
}

void VirtualClock::count_collective(double seconds) {
  (is_aside_ ? aside_s_ : counted_s_) += seconds;
  counts_ |= !is_aside_;
}

bool VirtualClock::end_aside() {
  is_aside_ = false;
  const double seconds = std::exchange(aside_s_, 0.0);
  if (seconds > 0) aside_.push_back({.seconds = seconds});
  return seconds > 0;
}

void VirtualClock::await_aside() {
  const auto first = aside_.front();
  aside_.pop_front();
  if (first.is_new) {  // it has not gone on beside anything
    wait_until(aside_until_s_);
    count_collective(first.seconds);
  } else {
    wait_until(first.end_s);
  }
}

void VirtualClock::settle(double latest_s) {
  double begin_s = std::max(now_s_, latest_s);
  if (counts_) now_s_ = begin_s += counted_s_;
  for (auto& aside : aside_) {
    if (!aside.is_new) continue;
    aside_until_s_ = std::max(aside_until_s_, begin_s) + aside.seconds;
    aside = {.seconds = aside.seconds, .end_s = aside_until_s_, .is_new = false};
  }
  forget();
}

void VirtualClock::forget() {
  counted_s_ = 0;
  counts_ = false;
}

double broadcast_seconds(const topology::Fabric::Link& link, int nodes, double bytes) {
  return nodes < 2 ? 0 : tree_levels(nodes) * link.seconds(bytes);
}

double half_ring_seconds(const topology::Fabric::Link& link, int nodes, double bytes) {
  return nodes < 2 ? 0 : (nodes - 1) * link.seconds(bytes / nodes);
}

double all_reduce_seconds(const topology::Fabric::Link& link, int nodes, double bytes) {
  return std::min(2 * half_ring_seconds(link, nodes, bytes), 2 * broadcast_seconds(link, nodes, bytes));
}

}  // namespace dtrain::comm
