#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/emulation/virtual_clock.hpp"
#include "comm/group.hpp"

namespace dtrain::comm {

/// Passes everything on, and counts on the clock what each collective would take on the emulated machine.
/// Messages are not counted: their sender's time has to travel with them.
class ClockedGroup final : public Group {
 public:
  /// Both are borrowed.
  ClockedGroup(Group& group, VirtualClock& clock) : group_(group), clock_(clock) {
    std::vector<int> ranks;
    for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(group.world_rank_of(rank));
    nodes_ = clock.fabric().nodes_of(ranks);
    link_ = clock.fabric().slowest_link(ranks);
  }

  const std::string& name() const override { return group_.name(); }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int world_rank_of(int group_rank) const override { return group_.world_rank_of(group_rank); }
  std::unique_ptr<SharedBuffer> allocate(std::size_t bytes) override { return group_.allocate(bytes); }
  std::unique_ptr<SharedBuffer> allocate_common(std::size_t bytes) override {
    return group_.allocate_common(bytes);
  }
  Handle all_reduce(Buffer values, ReduceOp op, Algorithm algorithm) override {
    count(all_reduce_seconds(link_, nodes_, bytes_of(values)));
    return group_.all_reduce(values, op, algorithm);
  }
  Range reduced_part(Buffer values, Algorithm algorithm) const override {
    return group_.reduced_part(values, algorithm);
  }
  Handle reduce_parts(Buffer values, ReduceOp op, Algorithm algorithm) override {
    count(all_reduce_seconds(link_, nodes_, bytes_of(values)));
    return group_.reduce_parts(values, op, algorithm);
  }
  Handle reduce_scatter(Buffer input, Buffer output, ReduceOp op) override {
    count(half_ring_seconds(link_, nodes_, bytes_of(input)));
    return group_.reduce_scatter(input, output, op);
  }
  Handle all_gather(Buffer input, Buffer output) override {
    count(half_ring_seconds(link_, nodes_, bytes_of(output)));
    return group_.all_gather(input, output);
  }
  Handle all_to_all(Buffer input, Buffer output) override {
    count(half_ring_seconds(link_, nodes_, bytes_of(input)));
    return group_.all_to_all(input, output);
  }
  Handle broadcast(Buffer values, int root) override {
    count(broadcast_seconds(link_, nodes_, bytes_of(values)));
    return group_.broadcast(values, root);
  }
  Handle send(Buffer values, int to) override { return group_.send(values, to); }
  Handle receive(Buffer values, int from) override { return group_.receive(values, from); }
  Handle barrier() override {
    count(broadcast_seconds(link_, nodes_, 0));
    return group_.barrier();
  }

 private:
  static double bytes_of(const Buffer& values) { return static_cast<double>(values.bytes()); }
  void count(double seconds) {
    if (size() > 1) clock_.count_collective(seconds);
  }

  Group& group_;
  VirtualClock& clock_;
  int nodes_ = 1;
  topology::Fabric::Link link_;
};

}  // namespace dtrain::comm
