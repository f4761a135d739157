#include "parallel/gradients/piece_tree.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <iterator>
#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {

std::vector<PieceTree::Node> PieceTree::cover(Range pieces) {
  std::vector<Node> nodes;
  for (auto begin = pieces.begin; begin < pieces.end;) {
    int height = 0;
    while (begin % (std::int64_t{2} << height) == 0 && begin + (std::int64_t{2} << height) <= pieces.end)
      ++height;
    nodes.push_back({.height = height, .index = static_cast<int>(begin >> height)});
    begin += std::int64_t{1} << height;
  }
  return nodes;
}

void PieceTree::add(Node node, at::Tensor value) {
  const at::NoGradGuard no_grad;
  for (;;) {
    const auto other = nodes_.find({.height = node.height, .index = node.index ^ 1});
    if (other == nodes_.end() || other->first.height != node.height) break;
    other->second.add_(value);  // a + b has the bits of b + a
    free_.push_back(std::exchange(value, std::move(other->second)));
    nodes_.erase(other);
    node = {.height = node.height + 1, .index = node.index / 2};
  }
  const bool fresh = nodes_.emplace(node, std::move(value)).second;
  require(fresh, "has been added up twice", {.subject = "a micro-batch"});
}

std::vector<at::Tensor> PieceTree::values() const {
  std::vector<at::Tensor> values;
  for (const auto& [node, value] : nodes_) values.push_back(value);
  return values;
}

at::Tensor PieceTree::take_total() {
  require(!nodes_.empty(), "has no micro-batch", {.subject = "a sum"});
  while (nodes_.size() > 1) {  // the last node's right half is behind the end: it moves up as it is
    auto last = nodes_.extract(std::prev(nodes_.end()));
    add({.height = last.key().height + 1, .index = last.key().index / 2}, std::move(last.mapped()));
  }
  return std::move(nodes_.extract(nodes_.begin()).mapped());
}

void PieceTree::clear() {
  for (auto& [node, value] : nodes_) free_.push_back(std::move(value));
  nodes_.clear();
}

at::Tensor PieceTree::take_free() {
  if (free_.empty()) return {};
  auto memory = std::move(free_.back());
  free_.pop_back();
  return memory;
}

}  // namespace dtrain::parallel
