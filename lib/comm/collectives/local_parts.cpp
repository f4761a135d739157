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
  LocalReduceScatter(Segment& segment, const Descriptor& mine, std::vector<LocalPart> wanted, ReduceOp op,
                     const Label& where)
      : LocalParts(segment, mine, where), wanted_(std::move(wanted)), op_(op) {
    const auto others = static_cast<std::int64_t>(segment.size() - 1);
    std::int64_t own = 0;
    for (const LocalPart& part : wanted_) own += static_cast<std::int64_t>(part.to.bytes());
    bytes_received_ = others * own;
    bytes_sent_ = static_cast<std::int64_t>(mine.count * size_of(static_cast<DataType>(mine.type))) - own;
  }

 private:
  static constexpr std::size_t kBlockBytes = 4096;  // stays in the first-level cache

  /// The output may be this rank's own part of its input, hence the detour.
  void read() override {
    for (const LocalPart& part : wanted_) read(part);
  }

  void read(const LocalPart& wanted) {
    const auto& [begin, output] = wanted;
    const std::size_t element = size_of(output.type);
    const std::span<void*> parts = segment_.pointers();
    for (int peer = 0; peer < segment_.size(); ++peer) {
      parts[static_cast<std::size_t>(peer)] = input_of(peer) + static_cast<std::size_t>(begin) * element;
    }
    alignas(64) std::array<std::byte, kBlockBytes> block;
    for (std::size_t done = 0; done < output.bytes(); done += kBlockBytes) {
      const std::size_t now = std::min(kBlockBytes, output.bytes() - done);
      reduce_to(block.data(), parts, now / element, output.type, op_);
      std::memcpy(static_cast<std::byte*>(output.data) + done, block.data(), now);
      for (void*& part : parts) part = static_cast<std::byte*>(part) + now;
    }
  }

  std::vector<LocalPart> wanted_;
  ReduceOp op_;
};

/// In chunks through the segment: while the others read one, each rank writes its next.
class LocalPartGather final : public Step {
 public:
  LocalPartGather(Segment& segment, const Descriptor& mine, std::vector<std::vector<Buffer>> parts,
                  const Label& where)
      : segment_(segment), mine_(mine), parts_(std::move(parts)), where_(where) {
    std::size_t all = 0;
    for (const auto& of_rank : parts_) {
      all += bytes_of(of_rank);
      chunks_ = std::max(chunks_, (bytes_of(of_rank) + segment.chunk_bytes() - 1) / segment.chunk_bytes());
    }
    const std::size_t own = bytes_of(own_parts());
    bytes_sent_ = static_cast<std::int64_t>(own) * (segment.size() - 1);
    bytes_received_ = static_cast<std::int64_t>(all - own);
    by_rank_ = segment.bytes_with_all();
  }

  std::string missing() const override { return segment_.missing(); }
  bool sleep(double limit_s) override { return segment_.sleep(limit_s); }

  bool advance() override {
    if (!entered_) {
      write(0, 0);
      segment_.enter(mine_);
      entered_ = true;
    }
    while (segment_.all_posted()) {
      if (chunk_ == 0) check_agreement(segment_, mine_, where_);
      const bool last = chunk_ + 1 >= chunks_;
      if (!last) write(chunk_ + 1, 1);
      for (int peer = 0; peer < segment_.size(); ++peer)
        if (peer != segment_.rank()) read(chunk_, peer);
      segment_.next_turn();
      if (last) return true;
      segment_.post();
      ++chunk_;
    }
    return false;
  }

 private:
  static std::size_t bytes_of(const std::vector<Buffer>& parts) {
    std::size_t bytes = 0;
    for (const Buffer& part : parts) bytes += part.bytes();
    return bytes;
  }
  const std::vector<Buffer>& own_parts() const { return parts_[static_cast<std::size_t>(segment_.rank())]; }

  /// Calls `copy(place, offset in the chunk, bytes)` for what a chunk has of parts that lie side by side in
  /// it.
  template <class Copy>
  void for_chunk(const std::vector<Buffer>& parts, std::size_t chunk, const Copy& copy) const {
    const std::size_t begin = chunk * segment_.chunk_bytes();
    const std::size_t end = begin + segment_.chunk_bytes();
    std::size_t before = 0;
    for (const Buffer& part : parts) {
      const std::size_t from = std::max(before, begin);
      const std::size_t to = std::min(before + part.bytes(), end);
      if (from < to) copy(static_cast<std::byte*>(part.data) + (from - before), from - begin, to - from);
      before += part.bytes();
    }
  }

  void write(std::size_t chunk, unsigned later) {
    std::byte* const staging = segment_.staging(segment_.rank(), later);
    for_chunk(own_parts(), chunk, [&](const std::byte* place, std::size_t offset, std::size_t bytes) {
      std::memcpy(staging + offset, place, bytes);
    });
  }
  void read(std::size_t chunk, int peer) const {
    const std::byte* const staging = segment_.staging(peer, 0);
    for_chunk(parts_[static_cast<std::size_t>(peer)], chunk,
              [&](std::byte* place, std::size_t offset, std::size_t bytes) {
                std::memcpy(place, staging + offset, bytes);
              });
  }

  Segment& segment_;
  Descriptor mine_;
  std::vector<std::vector<Buffer>> parts_;  // by rank of the segment
  Label where_;
  std::size_t chunks_ = 1;
  std::size_t chunk_ = 0;
  bool entered_ = false;
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

std::unique_ptr<Step> make_local_reduce_scatter(Segment& segment, const Descriptor& mine,
                                                std::vector<LocalPart> parts, ReduceOp op,
                                                const Label& where) {
  return std::make_unique<LocalReduceScatter>(segment, mine, std::move(parts), op, where);
}

std::unique_ptr<Step> make_local_part_gather(Segment& segment, const Descriptor& mine,
                                             std::vector<std::vector<Buffer>> parts, const Label& where) {
  return std::make_unique<LocalPartGather>(segment, mine, std::move(parts), where);
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
