#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/group.hpp"

namespace dtrain::comm {

/// A group that passes everything on to another one: what watches or changes some of its operations overrides
/// those.
class PassingGroup : public Group {
 public:
  explicit PassingGroup(Group& group) : group_(group) {}  ///< Borrowed.

  const std::string& name() const override { return group_.name(); }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int world_rank_of(int group_rank) const override { return group_.world_rank_of(group_rank); }
  NodePlace node_place() const override { return group_.node_place(); }
  std::unique_ptr<SharedBuffer> allocate(std::size_t bytes) override { return group_.allocate(bytes); }
  bool registers_memory() const override { return group_.registers_memory(); }
  std::unique_ptr<SharedBuffer> allocate_common(std::size_t bytes) override {
    return group_.allocate_common(bytes);
  }
  Handle all_reduce(Buffer values, ReduceOp op, Algorithm algorithm) override {
    return group_.all_reduce(values, op, algorithm);
  }
  Handle all_reduce_encoded(Buffer values, Encoding& encoding) override {
    return group_.all_reduce_encoded(values, encoding);
  }
  Range reduced_part(Buffer values, Algorithm algorithm) const override {
    return group_.reduced_part(values, algorithm);
  }
  Handle reduce_parts(Buffer values, ReduceOp op, Algorithm algorithm) override {
    return group_.reduce_parts(values, op, algorithm);
  }
  Handle reduce_scatter(Buffer input, Buffer output, ReduceOp op) override {
    return group_.reduce_scatter(input, output, op);
  }
  Handle all_gather(Buffer input, Buffer output) override { return group_.all_gather(input, output); }
  Handle all_to_all(Buffer input, Buffer output) override { return group_.all_to_all(input, output); }
  Handle broadcast(Buffer values, int root) override { return group_.broadcast(values, root); }
  Handle send(Buffer values, int to) override { return group_.send(values, to); }
  Handle receive(Buffer values, int from) override { return group_.receive(values, from); }
  Handle barrier() override { return group_.barrier(); }

 protected:
  Group& passed_on() { return group_; }

 private:
  Group& group_;
};

}  // namespace dtrain::comm
