#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/group.hpp"
#include "core/error.hpp"

namespace dtrain::parallel {

/// A rank at a place among nodes, without the others: what it sums is what it has.
class PlacedGroup : public comm::Group {
 public:
  explicit PlacedGroup(const comm::NodePlace& place) : place_(place) {}

  comm::NodePlace node_place() const override { return place_; }
  const std::string& name() const override { return name_; }
  int rank() const override { return place_.node; }
  int size() const override { return place_.nodes; }
  int world_rank_of(int group_rank) const override { return group_rank; }
  std::unique_ptr<comm::SharedBuffer> allocate(std::size_t /*bytes*/) override { refuse(); }
  comm::Handle all_reduce(comm::Buffer /*values*/, comm::ReduceOp /*op*/,
                          comm::Algorithm /*algorithm*/) override {
    return {};
  }
  comm::Handle reduce_scatter(comm::Buffer /*input*/, comm::Buffer /*output*/,
                              comm::ReduceOp /*op*/) override {
    refuse();
  }
  comm::Handle all_gather(comm::Buffer /*input*/, comm::Buffer /*output*/) override { refuse(); }
  comm::Handle all_to_all(comm::Buffer /*input*/, comm::Buffer /*output*/) override { refuse(); }
  comm::Handle broadcast(comm::Buffer /*values*/, int /*root*/) override { refuse(); }
  comm::Handle send(comm::Buffer /*values*/, int /*to*/) override { refuse(); }
  comm::Handle receive(comm::Buffer /*values*/, int /*from*/) override { refuse(); }
  comm::Handle barrier() override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw Error("has no other ranks", {.subject = "the group of the test"});
  }

  comm::NodePlace place_;
  std::string name_ = "data";
};

}  // namespace dtrain::parallel
