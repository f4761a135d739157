#include "comm/emulation/virtual_clock.hpp"

#include <algorithm>
#include <bit>

namespace dtrain::comm {
namespace {

double tree_levels(int nodes) { return std::bit_width(static_cast<unsigned>(nodes - 1)); }

}  // namespace

void VirtualClock::receive(int from, double sent_s, double bytes) {
  now_s_ = std::max(now_s_, sent_s + fabric_.link(from, rank_).seconds(bytes));
}

void VirtualClock::settle(double latest_s) {
  now_s_ = std::max(now_s_, latest_s) + counted_s_;
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
