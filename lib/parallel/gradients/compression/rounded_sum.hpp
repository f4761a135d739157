#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/encoding.hpp"
#include "core/slice.hpp"
#include "kernels/philox.hpp"
#include "parallel/gradients/compression/block_codec.hpp"
#include "parallel/gradients/compression/wire_message.hpp"

namespace dtrain::parallel {

/// A sum over nodes whose values are rounded by chance to 16 or 8 bits, or travel as they are. Each node adds
/// up one part of them in float32, and rounds the sums once more for the others: of n nodes each sends 2 (n -
/// 1) / n of the encoded values, as a ring does.
class RoundedSum final : public comm::MessageRounds {
 public:
  /// For the `node`th of `nodes`. `values` are borrowed. `chances`: of this step and these values, the same
  /// on all nodes; `first`: the number of the first value in them, a multiple of 8.
  RoundedSum(std::span<float> values, BlockCodec codec, int node, int nodes,
             const kernels::RandomKey& chances = {}, std::uint64_t first = 0);

  std::optional<Round> next() override;

 private:
  Range part(int node) const;
  std::span<float> values_of(int node) const;
  WireMessage encoded(int node, bool sums) const;
  Round give_parts();
  Round give_sums();
  void take_sums();

  std::span<float> values_;
  BlockCodec codec_;
  int node_;
  int nodes_;
  kernels::RandomKey chances_;
  std::uint64_t first_;
  int rounds_ = 0;
  std::vector<WireMessage> arriving_;  // by node
  WireMessage own_sums_;
};

/// RoundedSum of a bucket of gradients.
class RoundedEncoding final : public comm::Encoding {
 public:
  /// `first`: where the bucket begins in the flat gradient, a multiple of 8.
  RoundedEncoding(WireType type, std::uint64_t seed, std::uint64_t first)
      : type_(type), seed_(seed), first_(first) {}

  void begin_step(std::int64_t number) { step_ = number; }

  std::uint16_t id() const override { return static_cast<std::uint16_t>(1 + static_cast<int>(type_)); }
  bool takes_whole_buffers() const override { return false; }
  std::size_t bytes(std::size_t count) const override { return BlockCodec(type_).bytes(count); }
  std::unique_ptr<comm::MessageRounds> begin(std::span<float> values, std::size_t first, int node,
                                             int nodes) override;

 private:
  WireType type_;
  std::uint64_t seed_;
  std::uint64_t first_;
  std::int64_t step_ = 0;
};

}  // namespace dtrain::parallel
