// All-reduce over nodes whose ranks share memory. The buffer goes in chunks: while one is between the nodes,
// the next is reduced within them.
#include "comm/collectives/hierarchical.hpp"

#include <algorithm>
#include <utility>

#include "comm/collectives/encoded_all_reduce.hpp"
#include "comm/collectives/local_steps.hpp"
#include "comm/collectives/message_steps.hpp"
#include "comm/collectives/slicing.hpp"
#include "core/clock.hpp"

namespace dtrain::comm {
namespace {

// A chunk takes 34 ms on a link of 1 Gb/s and some 2 ms within a node: what the first and the last of them
// wait for each other is little, and a chunk is still cut into many messages.
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;

// So many cross at a time, so that the link has work while one ends and the next begins; and so many are
// reduced before the first is handed on, so that the next are ready to cross when these are done.
constexpr std::size_t kCrossing = 2;
constexpr std::size_t kAhead = 2 * kCrossing;

class HierarchicalAllReduce final : public Step {
 public:
  HierarchicalAllReduce(Segment* segment, const Descriptor& mine, const Crossing& crossing,
                        const Buffer& values, ReduceOp op, const Label& where, Encoding* encoding)
      : encoding_(encoding) {
    const bool whole = encoding != nullptr && encoding->takes_whole_buffers();
    const auto chunks = whole ? 1 : std::clamp<std::size_t>(values.bytes() / kChunkBytes, 1, kMostChunks);
    chunks_.resize(chunks);
    for (std::size_t c = 0; c < chunks; ++c) {
      const Range range =
          aligned_part(values.count, size_of(values.type), static_cast<int>(c), static_cast<int>(chunks));
      const std::size_t offset = static_cast<std::size_t>(range.begin) * size_of(values.type);
      const Buffer part = values.part(static_cast<std::size_t>(range.begin), size_of_range(range));
      add_chunk(chunks_[c], segment, mine, offset, crossing, static_cast<int>(c), part, op, where);
    }
    // Within a node all ranks take these steps in one order: the segment serves one operation at a time.
    for (std::size_t c = 0; segment != nullptr && c < chunks + kAhead; ++c) {
      if (c < chunks) local_.push_back({c, false});
      if (c >= kAhead) local_.push_back({c - kAhead, true});
    }
  }

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = advance_crossings();
      moved |= advance_local();
    }
    return next_ == local_.size() && crossed_ == chunks_.size();
  }

  std::string missing() const override {
    if (waits_within_node()) return current().missing();
    for (const Chunk& chunk : chunks_) {
      if (under_way(chunk)) return chunk.cross->missing();
    }
    return {};
  }

  /// Messages must be polled.
  bool sleep(double limit_s) override { return waits_within_node() && current().sleep(limit_s); }

 private:
  struct Chunk {
    std::unique_ptr<Step> in;     ///< The node's values reduced; null where the node has one rank.
    std::unique_ptr<Step> cross;  ///< Reduced over the nodes; null where another rank does that.
    std::unique_ptr<Step> out;    ///< The result to all ranks of the node; null as `in`.
    bool reduced = false;
    bool crossed = false;
    double begun_s = 0;  ///< When `cross` began, where that is asked for.
  };
  struct LocalStep {
    std::size_t chunk;
    bool out;
  };

  void add_chunk(Chunk& chunk, Segment* segment, Descriptor mine, std::size_t offset,
                 const Crossing& crossing, int index, const Buffer& part, ReduceOp op,
                 const Label& where) const {
    Buffer slice = part;
    const std::size_t begin = offset / size_of(part.type);
    std::size_t first = begin;
    if (segment != nullptr) {
      mine.offset += offset;
      if (crossing.in_lanes) {
        const Range own = aligned_part(part.count, size_of(part.type), segment->rank(), segment->size());
        slice = part.part(static_cast<std::size_t>(own.begin), size_of_range(own));
        first = begin + static_cast<std::size_t>(own.begin);
        chunk.in = make_local_reduce(*segment, mine, part, op, Target::owners, where);
        chunk.out = make_local_slice_gather(*segment, mine, part, where);
      } else {
        chunk.in = make_local_reduce(*segment, mine, part, op, Target::leader, where);
        chunk.out = make_local_broadcast(*segment, mine, part, 0, where);
      }
    }
    chunk.reduced = segment == nullptr;
    if (crossing.ranks.empty()) return;
    Party party = {.channel = crossing.channel, .ranks = crossing.ranks, .index = crossing.index};
    party.channel.tag += index;
    auto rounds = encoding_ == nullptr ? nullptr
                                       : encoding_->begin({static_cast<float*>(slice.data), slice.count},
                                                          first, party.index, party.size());
    if (rounds != nullptr) {
      chunk.cross = make_encoded_all_reduce(std::move(party), std::move(rounds));
      return;
    }
    chunk.cross = slice.bytes() <= kTreeBytes ? make_tree_all_reduce(party, slice, op)
                                              : make_ring_all_reduce(party, slice, op);
  }

  bool under_way(const Chunk& chunk) const { return chunk.reduced && !chunk.crossed && chunk.cross; }

  /// The first that have not crossed: each has a tag of its own, so that they cannot be mixed up.
  bool advance_crossings() {
    bool moved = false;
    std::size_t crossing = 0;
    for (Chunk& chunk : chunks_) {
      if (!chunk.reduced || crossing == kCrossing) break;
      if (chunk.crossed) continue;
      if (encoding_ != nullptr && chunk.begun_s == 0) chunk.begun_s = steady_s();
      if (chunk.cross && !chunk.cross->advance()) {
        ++crossing;
        continue;
      }
      if (chunk.cross) count(*chunk.cross);
      if (chunk.cross && encoding_ != nullptr) encoding_->crossed(steady_s() - chunk.begun_s);
      chunk.crossed = moved = true;
      ++crossed_;
    }
    return moved;
  }

  bool advance_local() {
    if (next_ == local_.size()) return false;
    const LocalStep step = local_[next_];
    Chunk& chunk = chunks_[step.chunk];
    if ((step.out && !chunk.crossed) || !current().advance()) return false;
    count(current());
    chunk.reduced = true;
    ++next_;
    return true;
  }

  Step& current() const {
    const Chunk& chunk = chunks_[local_[next_].chunk];
    return local_[next_].out ? *chunk.out : *chunk.in;
  }

  bool waits_within_node() const {
    if (next_ == local_.size()) return false;
    return std::none_of(chunks_.begin(), chunks_.end(),
                        [this](const Chunk& chunk) { return under_way(chunk); });
  }

  Encoding* encoding_;  // null: values cross as they are
  std::vector<Chunk> chunks_;
  std::vector<LocalStep> local_;
  std::size_t next_ = 0;     ///< Of local_.
  std::size_t crossed_ = 0;  ///< Chunks.
};

}  // namespace

std::unique_ptr<Step> make_hierarchical_all_reduce(Segment* segment, const Descriptor& mine,
                                                   const Crossing& crossing, Buffer values, ReduceOp op,
                                                   const Label& where, Encoding* encoding) {
  return std::make_unique<HierarchicalAllReduce>(segment, mine, crossing, values, op, where, encoding);
}

}  // namespace dtrain::comm
