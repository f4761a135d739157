#pragma once

#include <vector>

#include "comm/emulation/virtual_clock.hpp"
#include "comm/passing_group.hpp"

namespace dtrain::comm {

/// Passes everything on, and counts on the clock what each collective would take on the emulated machine.
/// Messages are not counted: their sender's time has to travel with them.
class ClockedGroup final : public PassingGroup {
 public:
  /// Both are borrowed. `lanes`: groups of other ranks of the same nodes that do the same at once, this one
  /// included: they share the links.
  ClockedGroup(Group& group, VirtualClock& clock, int lanes = 1)
      : PassingGroup(group), clock_(clock), lanes_(lanes) {
    std::vector<int> ranks;
    for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(group.world_rank_of(rank));
    nodes_ = clock.fabric().nodes_of(ranks);
    link_ = clock.fabric().slowest_link(ranks);
  }

  Handle all_reduce(Buffer values, ReduceOp op, Algorithm algorithm) override {
    count(all_reduce_seconds(link_, nodes_, bytes_of(values)));
    return PassingGroup::all_reduce(values, op, algorithm);
  }
  Handle all_reduce_encoded(Buffer values, Encoding& encoding) override {
    double seconds =
        all_reduce_seconds(link_, nodes_, lanes_ * static_cast<double>(encoding.bytes(values.count)));
    const double rounding = nodes_ > 1 ? clock_.fabric().encode_s_per_byte * bytes_of(values) : 0;
    if (encoding.encodes()) seconds += rounding;
    count(seconds);
    encoding.counted(seconds, rounding);
    return PassingGroup::all_reduce_encoded(values, encoding);
  }
  Handle reduce_parts(Buffer values, ReduceOp op, Algorithm algorithm) override {
    count(all_reduce_seconds(link_, nodes_, bytes_of(values)));
    return PassingGroup::reduce_parts(values, op, algorithm);
  }
  Handle reduce_scatter(Buffer input, Buffer output, ReduceOp op) override {
    count(half_ring_seconds(link_, nodes_, bytes_of(input)));
    return PassingGroup::reduce_scatter(input, output, op);
  }
  Handle all_gather(Buffer input, Buffer output) override {
    count(half_ring_seconds(link_, nodes_, bytes_of(output)));
    return PassingGroup::all_gather(input, output);
  }
  Handle all_to_all(Buffer input, Buffer output) override {
    count(half_ring_seconds(link_, nodes_, bytes_of(input)));
    return PassingGroup::all_to_all(input, output);
  }
  Handle broadcast(Buffer values, int root) override {
    count(broadcast_seconds(link_, nodes_, bytes_of(values)));
    return PassingGroup::broadcast(values, root);
  }
  Handle barrier() override {
    count(broadcast_seconds(link_, nodes_, 0));
    return PassingGroup::barrier();
  }

 private:
  double bytes_of(const Buffer& values) const { return lanes_ * static_cast<double>(values.bytes()); }
  void count(double seconds) {
    if (size() > 1) clock_.count_collective(seconds);
  }

  VirtualClock& clock_;
  double lanes_;
  int nodes_ = 1;
  topology::Fabric::Link link_;
};

}  // namespace dtrain::comm
