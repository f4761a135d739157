// reduce_scatter, all_gather and what of an all_reduce over nodes is alike, within a node, of inputs in
// buffers from allocate(): between two barriers each rank reads the others' memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/collectives/local_steps.hpp"
#include "comm/collectives/reduce.hpp"
#include "comm/collectives/slicing.hpp"
#include "comm/group_arguments.hpp"

namespace dtrain::comm {
namespace {

/// The first barrier says that every input is there, the second that no rank reads it any more.
class LocalParts : public Step {
 public:
  LocalParts(Segment& segment, const Descriptor& mine, const Label& where)
      : segment_(segment), mine_(mine), where_(where) {
    by_rank_ = segment.bytes_with_all();
  }

  std::string missing() const override { return segment_.missing(); }
  bool sleep(double limit_s) override { return segment_.sleep(limit_s); }

  bool advance() override {
    if (state_ == State::before) {
      segment_.enter(mine_);
      state_ = State::entering;
    }
    if (!segment_.all_posted()) return false;
    if (state_ == State::leaving) return true;
    check_agreement(segment_, mine_, where_);
    check_memory(segment_, mine_, where_);
    read();
    segment_.post();
    state_ = State::leaving;
    return segment_.all_posted();
  }

 protected:
  virtual void read() = 0;

  std::byte* input_of(int peer) const {
    const Descriptor& theirs = segment_.descriptor(peer);
    return segment_.address(static_cast<std::uint16_t>(theirs.allocation - 1), peer, theirs.offset);
  }

  Segment& segment_;

 private:
  enum class State { before, entering, leaving };
  Descriptor mine_;
  Label where_;
  State state_ = State::before;
};

class LocalReduceScatter final : public LocalParts {
 public:
  LocalReduceScatter(Segment& segment, const Descriptor& mine, std::int64_t begin, Buffer output, ReduceOp op,
                     const Label& where)
      : LocalParts(segment, mine, where), begin_(begin), output_(output), op_(op) {
    const auto others = static_cast<std::int64_t>(segment.size() - 1);
    bytes_received_ = others * static_cast<std::int64_t>(output.bytes());
    bytes_sent_ = static_cast<std::int64_t>(mine.count * size_of(output.type) - output.bytes());
  }

 private:
  static constexpr std::size_t kBlockBytes = 4096;  // stays in the first-level cache

  /// The output may be this rank's own part of its input, hence the detour.
  void read() override {
    const std::size_t element = size_of(output_.type);
    const std::span<void*> parts = segment_.pointers();
    for (int peer = 0; peer < segment_.size(); ++peer) {
      parts[static_cast<std::size_t>(peer)] = input_of(peer) + static_cast<std::size_t>(begin_) * element;
    }
    alignas(64) std::array<std::byte, kBlockBytes> block;
    for (std::size_t done = 0; done < output_.bytes(); done += kBlockBytes) {
      const std::size_t now = std::min(kBlockBytes, output_.bytes() - done);
      reduce_to(block.data(), parts, now / element, output_.type, op_);
      std::memcpy(static_cast<std::byte*>(output_.data) + done, block.data(), now);
      for (void*& part : parts) part = static_cast<std::byte*>(part) + now;
    }
  }

  std::int64_t begin_;
  Buffer output_;
  ReduceOp op_;
};

class LocalAllGather final : public LocalParts {
 public:
  LocalAllGather(Segment& segment, const Descriptor& mine, Buffer output, const Label& where)
      : LocalParts(segment, mine, where), parts_(parts_of(output, segment.size())) {
    const auto own = static_cast<std::int64_t>(parts_[static_cast<std::size_t>(segment.rank())].bytes());
    bytes_sent_ = own * (segment.size() - 1);
    bytes_received_ = static_cast<std::int64_t>(output.bytes()) - own;
  }

 private:
  void read() override {
    for (int peer = 0; peer < segment_.size(); ++peer) {
      const Buffer& part = parts_[static_cast<std::size_t>(peer)];
      const std::byte* const from = input_of(peer);
      if (part.count > 0 && from != part.data) std::memmove(part.data, from, part.bytes());
    }
  }

  std::vector<Buffer> parts_;
};

class LocalSliceGather final : public LocalParts {
 public:
  LocalSliceGather(Segment& segment, const Descriptor& mine, Buffer values, const Label& where)
      : LocalParts(segment, mine, where), values_(values) {
    const auto own = static_cast<std::int64_t>(bytes_of(slice_of(segment.rank())));
    bytes_sent_ = own * (segment.size() - 1);
    bytes_received_ = static_cast<std::int64_t>(values.bytes()) - own;
  }

 private:
  void read() override {
    for (int peer = 0; peer < segment_.size(); ++peer) {
      if (peer == segment_.rank()) continue;
      const Range slice = slice_of(peer);
      const std::size_t offset = static_cast<std::size_t>(slice.begin) * size_of(values_.type);
      std::memcpy(static_cast<std::byte*>(values_.data) + offset, input_of(peer) + offset, bytes_of(slice));
    }
  }

  Range slice_of(int local_rank) const {
    return aligned_part(values_.count, size_of(values_.type), local_rank, segment_.size());
  }
  std::size_t bytes_of(const Range& slice) const { return size_of_range(slice) * size_of(values_.type); }

  Buffer values_;
};

}  // namespace

std::unique_ptr<Step> make_local_reduce_scatter(Segment& segment, const Descriptor& mine, std::int64_t begin,
                                                Buffer output, ReduceOp op, const Label& where) {
  return std::make_unique<LocalReduceScatter>(segment, mine, begin, output, op, where);
}

std::unique_ptr<Step> make_local_all_gather(Segment& segment, const Descriptor& mine, Buffer output,
                                            const Label& where) {
  return std::make_unique<LocalAllGather>(segment, mine, output, where);
}

std::unique_ptr<Step> make_local_slice_gather(Segment& segment, const Descriptor& mine, Buffer values,
                                              const Label& where) {
  return std::make_unique<LocalSliceGather>(segment, mine, values, where);
}

}  // namespace dtrain::comm
