#include "parallel/gradients/compression/rounded_sum.hpp"

#include <algorithm>
#include <utility>

namespace dtrain::parallel {
namespace {

constexpr auto kRoundedBlock = static_cast<std::int64_t>(BlockCodec::kBlock);

}  // namespace

RoundedSum::RoundedSum(std::span<float> values, BlockCodec codec, int node, int nodes,
                       const kernels::RandomKey& chances, std::uint64_t first)
    : values_(values), codec_(codec), node_(node), nodes_(nodes), chances_(chances), first_(first) {}

/// What a node adds up: whole blocks.
Range RoundedSum::part(int node) const {
  const auto count = static_cast<std::int64_t>(values_.size());
  const Range blocks = part_of((count + kRoundedBlock - 1) / kRoundedBlock, node, nodes_);
  return {std::min(blocks.begin * kRoundedBlock, count), std::min(blocks.end * kRoundedBlock, count)};
}

std::span<float> RoundedSum::values_of(int node) const {
  const Range range = part(node);
  return values_.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

/// A part as this node has it, its own values or the sums.
WireMessage RoundedSum::encoded(int node, bool sums) const {
  const auto values = values_of(node);
  WireMessage message(codec_.bytes(values.size()));
  auto chances = chances_;
  chances.minor = static_cast<std::uint32_t>(2 * node_ + (sums ? 1 : 0));
  codec_.encode(values, message.bytes(), chances, first_ + static_cast<std::uint64_t>(part(node).begin));
  return message;
}

std::optional<comm::MessageRounds::Round> RoundedSum::next() {
  switch (rounds_++) {
    case 0:
      return give_parts();
    case 1:
      return give_sums();
    default:
      take_sums();
      return std::nullopt;
  }
}

comm::MessageRounds::Round RoundedSum::give_parts() {
  Round round;
  for (int node = 0; node < nodes_; ++node) {
    const bool own = node == node_;
    round.outgoing.push_back(own ? comm::Buffer() : encoded(node, false).buffer());
    arriving_.emplace_back(own ? 0 : codec_.bytes(values_of(node_).size()));
    round.incoming.push_back(own ? comm::Buffer() : arriving_.back().buffer());
  }
  return round;
}

comm::MessageRounds::Round RoundedSum::give_sums() {
  const auto own = values_of(node_);
  for (int node = 0; node < nodes_; ++node) {
    if (node != node_) codec_.add(std::as_const(arriving_[static_cast<std::size_t>(node)]).bytes(), 1, own);
  }
  own_sums_ = encoded(node_, true);
  Round round;
  for (int node = 0; node < nodes_; ++node) {
    const bool is_own = node == node_;
    round.outgoing.push_back(is_own ? comm::Buffer() : own_sums_.buffer());
    arriving_[static_cast<std::size_t>(node)] =
        WireMessage(is_own ? 0 : codec_.bytes(values_of(node).size()));
    round.incoming.push_back(is_own ? comm::Buffer() : arriving_[static_cast<std::size_t>(node)].buffer());
  }
  return round;
}

/// What this node has added up it reads as the others do.
void RoundedSum::take_sums() {
  for (int node = 0; node < nodes_; ++node) {
    const auto& message = node == node_ ? own_sums_ : arriving_[static_cast<std::size_t>(node)];
    codec_.decode(message.bytes(), values_of(node));
  }
}

std::unique_ptr<comm::MessageRounds> RoundedEncoding::begin(std::span<float> values, std::size_t first,
                                                            int node, int nodes) {
  const kernels::RandomKey chances{
      .seed = seed_, .purpose = kernels::Purpose::compression, .major = static_cast<std::uint32_t>(step_)};
  return std::make_unique<RoundedSum>(values, BlockCodec(type_), node, nodes, chances, first_ + first);
}

}  // namespace dtrain::parallel
