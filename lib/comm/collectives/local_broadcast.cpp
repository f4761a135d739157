// What the ranks of one node do through shared memory besides reducing: broadcast and barrier.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/collectives/comparison.hpp"
#include "comm/collectives/local_steps.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

class LocalBroadcast final : public Step {
 public:
  LocalBroadcast(Segment& segment, const Descriptor& mine, Buffer values, int root, const Label& where)
      : segment_(segment), mine_(mine), values_(values), root_(root), where_(where) {
    const auto bytes = static_cast<std::int64_t>(values.bytes());
    (is_root() ? bytes_sent_ : bytes_received_) = is_root() ? bytes * (segment.size() - 1) : bytes;
    by_rank_ = is_root() ? segment.bytes_with_all() : segment.bytes_with(root);
  }

  std::string missing() const override { return segment_.missing(); }
  bool sleep(double limit_s) override { return segment_.sleep(limit_s); }

  bool advance() override {
    if (!entered_) {
      if (is_root() && mine_.allocation == 0) copy_chunk(0, 0);
      segment_.enter(mine_);
      entered_ = true;
    }
    while (segment_.all_posted()) {
      if (leaving_) return true;
      if (chunk_ == 0) check_agreement(segment_, mine_, where_);
      const Descriptor& source = segment_.descriptor(root_);
      if (source.allocation != 0) {
        if (!is_root() && values_.count > 0) {
          const void* const from =
              segment_.address(static_cast<std::uint16_t>(source.allocation - 1), root_, source.offset);
          std::memcpy(values_.data, from, values_.bytes());
        }
        segment_.post();
        leaving_ = true;
        continue;
      }
      if (advance_chunk()) return true;
    }
    return false;
  }

 private:
  bool is_root() const { return segment_.rank() == root_; }

  /// The root writes the next chunk while the others read this one.
  bool advance_chunk() {
    const bool last = (chunk_ + 1) * segment_.chunk_bytes() >= values_.bytes();
    if (is_root()) {
      if (!last) copy_chunk(chunk_ + 1, 1);
    } else {
      copy_chunk(chunk_, 0);
    }
    segment_.next_turn();
    if (!last) segment_.post();
    ++chunk_;
    return last;
  }

  void copy_chunk(std::size_t chunk, unsigned later) {
    const std::size_t offset = chunk * segment_.chunk_bytes();
    const std::size_t bytes = std::min(segment_.chunk_bytes(), values_.bytes() - offset);
    if (bytes == 0) return;
    std::byte* const values = static_cast<std::byte*>(values_.data) + offset;
    if (is_root()) {
      std::memcpy(segment_.staging(root_, later), values, bytes);
    } else {
      std::memcpy(values, segment_.staging(root_, later), bytes);
    }
  }

  Segment& segment_;
  Descriptor mine_;
  Buffer values_;
  int root_;
  Label where_;
  std::size_t chunk_ = 0;
  bool entered_ = false;
  bool leaving_ = false;
};

class LocalBarrier final : public Step {
 public:
  LocalBarrier(Segment& segment, const Descriptor& mine, const Label& where)
      : segment_(segment), mine_(mine), where_(where) {}

  std::string missing() const override { return segment_.missing(); }
  bool sleep(double limit_s) override { return segment_.sleep(limit_s); }

  bool advance() override {
    if (!entered_) segment_.enter(mine_);
    entered_ = true;
    if (!segment_.all_posted()) return false;
    check_agreement(segment_, mine_, where_);
    const auto kind = static_cast<OperationKind>(mine_.operation);
    if (kind == OperationKind::reduce_scatter || kind == OperationKind::all_gather) {
      check_memory(segment_, mine_, where_);  // the others may be within LocalParts
    }
    return true;
  }

 private:
  Segment& segment_;
  Descriptor mine_;
  Label where_;
  bool entered_ = false;
};

}  // namespace

void check_agreement(const Segment& segment, const Descriptor& mine, const Label& where) {
  for (int peer = 0; peer < segment.size(); ++peer) {
    const Descriptor theirs = segment.descriptor(peer);
    if (agree(mine, theirs)) continue;
    throw mismatch(segment.world_rank(segment.rank()), mine, segment.world_rank(peer), theirs, where);
  }
}

void check_memory(const Segment& segment, const Descriptor& mine, const Label& where) {
  for (int peer = 0; peer < segment.size(); ++peer) {
    if ((segment.descriptor(peer).allocation == 0) == (mine.allocation == 0)) continue;
    throw Error(fmt::format("rank {} and rank {} differ in using a buffer from allocate()",
                            segment.world_rank(segment.rank()), segment.world_rank(peer)),
                {.subject = where.text(), .advice = "pass such a buffer on all ranks or on none"});
  }
}

std::unique_ptr<Step> make_local_broadcast(Segment& segment, const Descriptor& mine, Buffer values,
                                           int local_root, const Label& where) {
  return std::make_unique<LocalBroadcast>(segment, mine, values, local_root, where);
}

std::unique_ptr<Step> make_local_barrier(Segment& segment, const Descriptor& mine, const Label& where) {
  return std::make_unique<LocalBarrier>(segment, mine, where);
}

}  // namespace dtrain::comm
