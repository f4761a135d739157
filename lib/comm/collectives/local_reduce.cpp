// All ranks of one node reduce through memory they share.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/collectives/local_steps.hpp"
#include "comm/collectives/reduce.hpp"
#include "comm/collectives/slicing.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

// Up to here everyone reading everything is cheaper than a second barrier (measured on 2 and 4 ranks); of
// buffers from allocate(), which need no copy, only less is.
constexpr std::size_t kSlotBytes = std::size_t{16} << 10;
constexpr std::size_t kSharedSlotBytes = 512;

class LocalReduce : public Step {
 public:
  LocalReduce(Segment& segment, const Descriptor& mine, Buffer values, ReduceOp op, Target target,
              const Label& where)
      : segment_(segment), mine_(mine), values_(values), op_(op), target_(target), where_(where) {
    const int n = segment.size();
    const auto bytes = static_cast<std::int64_t>(values.bytes());
    const int passes = target == Target::owners ? 1 : 2;
    bytes_sent_ = passes * bytes * (n - 1) / n;  // what any algorithm must move
    bytes_received_ = bytes_sent_;
    by_rank_ = segment.bytes_with_all();
  }

  std::string missing() const override { return segment_.missing(); }
  bool sleep(double limit_s) override { return segment_.sleep(limit_s); }

 protected:
  bool wants_result() const { return target_ != Target::leader || segment_.rank() == 0; }

  Segment& segment_;
  Descriptor mine_;
  Buffer values_;
  ReduceOp op_;
  Target target_;
  Label where_;
};

/// Each rank copies its values into its slot; after one barrier each adds all slots in the same order.
class SlotReduce final : public LocalReduce {
 public:
  using LocalReduce::LocalReduce;

  bool advance() override {
    if (!entered_) {
      if (values_.count > 0) std::memcpy(segment_.staging(segment_.rank()), values_.data, values_.bytes());
      segment_.enter(mine_);
      entered_ = true;
    }
    if (!segment_.all_posted()) return false;
    check_agreement(segment_, mine_, where_);
    if (values_.bytes() > kSharedSlotBytes) check_memory(segment_, mine_, where_);
    if (wants_result()) {
      const std::span<void*> slots = segment_.pointers();
      for (int peer = 0; peer < segment_.size(); ++peer)
        slots[static_cast<std::size_t>(peer)] = segment_.staging(peer);
      reduce_to(values_.data, slots, values_.count, values_.type, op_);
    }
    segment_.next_turn();
    return true;
  }

 private:
  bool entered_ = false;
};

/// Buffers from allocate(): between two barriers each rank reduces its slice of everybody's buffer in place.
/// To the owners the second barrier is the caller's.
class InPlaceReduce final : public LocalReduce {
 public:
  using LocalReduce::LocalReduce;

  bool advance() override {
    if (state_ == State::before) {
      segment_.enter(mine_);
      slice_ = aligned_part(values_.count, size_of(values_.type), segment_.rank(), segment_.size());
      state_ = State::entering;
    }
    if (!segment_.all_posted()) return false;
    if (state_ == State::leaving) return true;
    check_agreement(segment_, mine_, where_);
    check_memory(segment_, mine_, where_);
    reduce_slice();
    if (target_ == Target::owners) return true;
    segment_.post();
    state_ = State::leaving;
    return segment_.all_posted();
  }

 private:
  enum class State { before, entering, leaving };
  static constexpr std::size_t kBlockBytes = 4096;  // stays in the first-level cache

  void reduce_slice() {
    const std::size_t size = size_of(values_.type);
    const std::span<void*> buffers = segment_.pointers();
    for (int peer = 0; peer < segment_.size(); ++peer) {
      const Descriptor& theirs = segment_.descriptor(peer);
      const auto id = static_cast<std::uint16_t>(theirs.allocation - 1);
      buffers[static_cast<std::size_t>(peer)] =
          segment_.address(id, peer, theirs.offset + static_cast<std::size_t>(slice_.begin) * size);
    }
    if (target_ == Target::everyone) {
      reduce_among(buffers, size_of_range(slice_), values_.type, op_);
    } else if (target_ == Target::leader) {
      reduce_to(buffers[0], buffers, size_of_range(slice_), values_.type, op_);
    } else {
      reduce_to_own(buffers, size_of_range(slice_) * size);
    }
  }

  /// In the order of the ranks, as everywhere; the result replaces one of the addends, hence the detour.
  void reduce_to_own(const std::span<void*> buffers, std::size_t bytes) {
    alignas(64) std::array<std::byte, kBlockBytes> block;
    void* const own = buffers[static_cast<std::size_t>(segment_.rank())];
    for (std::size_t done = 0; done < bytes; done += kBlockBytes) {
      const std::size_t now = std::min(kBlockBytes, bytes - done);
      reduce_to(block.data(), buffers, now / size_of(values_.type), values_.type, op_);
      std::memcpy(static_cast<std::byte*>(own) + done, block.data(), now);
      for (void*& buffer : buffers) buffer = static_cast<std::byte*>(buffer) + now;
    }
  }

  State state_ = State::before;
  Range slice_;  ///< Worked out while the others arrive.
};

/// Ordinary memory: chunk after chunk is copied into the segment, reduced there by slices, and copied out.
/// One barrier per chunk: between two of them a rank reduces its slice of chunk c, copies chunk c+1 in and
/// chunk c-1 out.
class StagedReduce final : public LocalReduce {
 public:
  using LocalReduce::LocalReduce;

  bool advance() override {
    if (!entered_) {
      copy_in(0, 0);
      segment_.enter(mine_);
      entered_ = true;
    }
    while (segment_.all_posted()) {
      if (chunk_ == 0) {
        check_agreement(segment_, mine_, where_);
        check_memory(segment_, mine_, where_);
      }
      if (chunk_ == chunks()) {
        copy_out(chunk_ - 1);
        return true;
      }
      reduce_slice();
      if (chunk_ + 1 < chunks()) copy_in(chunk_ + 1, 1);
      if (chunk_ > 0) copy_out(chunk_ - 1);
      segment_.next_turn();
      segment_.post();
      ++chunk_;
    }
    return false;
  }

 private:
  std::size_t elements_per_chunk() const { return segment_.chunk_bytes() / size_of(values_.type); }
  std::size_t chunks() const { return (values_.count + elements_per_chunk() - 1) / elements_per_chunk(); }
  std::size_t count_of(std::size_t chunk) const {
    return std::min(elements_per_chunk(), values_.count - chunk * elements_per_chunk());
  }
  std::byte* values_at(std::size_t chunk) const {
    return static_cast<std::byte*>(values_.data) + chunk * segment_.chunk_bytes();
  }

  void copy_in(std::size_t chunk, unsigned later) {
    std::memcpy(segment_.staging(segment_.rank(), later), values_at(chunk),
                count_of(chunk) * size_of(values_.type));
  }
  /// The half of the next chunk is the half of the one before.
  void copy_out(std::size_t chunk) {
    if (!wants_result()) return;
    for (int peer = 0; peer < segment_.size(); ++peer) {
      const Range slice = slice_of(chunk, peer);
      std::memcpy(values_at(chunk) + offset_of(slice), segment_.result(peer, 1),
                  size_of_range(slice) * element_bytes());
    }
  }
  void reduce_slice() {
    const Range slice = slice_of(chunk_, segment_.rank());
    const std::span<void*> inputs = segment_.pointers();
    for (int peer = 0; peer < segment_.size(); ++peer) {
      inputs[static_cast<std::size_t>(peer)] = segment_.staging(peer) + offset_of(slice);
    }
    reduce_to(segment_.result(segment_.rank()), inputs, size_of_range(slice), values_.type, op_);
  }
  Range slice_of(std::size_t chunk, int local_rank) const {
    return aligned_part(count_of(chunk), element_bytes(), local_rank, segment_.size());
  }
  std::size_t offset_of(const Range& slice) const {
    return static_cast<std::size_t>(slice.begin) * element_bytes();
  }
  std::size_t element_bytes() const { return size_of(values_.type); }

  bool entered_ = false;
  std::size_t chunk_ = 0;
};

}  // namespace

bool leaves_parts(const Descriptor& mine, std::size_t bytes) {
  return mine.allocation != 0 && bytes > kSharedSlotBytes;
}

std::unique_ptr<Step> make_local_reduce(Segment& segment, const Descriptor& mine, Buffer values, ReduceOp op,
                                        Target target, const Label& where) {
  const std::size_t slot_bytes = std::min(kSlotBytes, segment.chunk_bytes());
  if (values.bytes() <= (mine.allocation != 0 ? kSharedSlotBytes : slot_bytes)) {
    return std::make_unique<SlotReduce>(segment, mine, values, op, target, where);
  }
  if (mine.allocation != 0) {
    return std::make_unique<InPlaceReduce>(segment, mine, values, op, target, where);
  }
  return std::make_unique<StagedReduce>(segment, mine, values, op, target, where);
}

}  // namespace dtrain::comm
