#include "comm/segment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {

// Each rank's part: its line, then two halves to stage into; rank 0's also has the two shared results.
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kPartBytes = kHeaderBytes + 4 * Segment::kChunkBytes;

SharedMemory create(const Communicator& local) {
  std::optional<SharedMemory> memory = SharedMemory::create(local, kPartBytes);
  require(
      memory.has_value(), "the ranks of this node cannot share memory",
      {.subject = "/dev/shm", .advice = "make room there, or start the container with a larger --shm-size"});
  return std::move(*memory);
}

}  // namespace

Segment::Segment(const Communicator& local, std::vector<int> world_ranks)
    : rank_(local.rank()),
      world_ranks_(std::move(world_ranks)),
      memory_(create(local)),
      pointers_(static_cast<std::size_t>(local.size())) {
  new (&line(rank_)) Line{};
  local.barrier();
}

/// Shifted from rank to rank: parts lie at equal distances, and lines at such distances share few cache sets.
Segment::Line& Segment::line(int local_rank) const {
  constexpr int kLines = static_cast<int>(kHeaderBytes / sizeof(Line));
  const auto shift = static_cast<std::size_t>(local_rank % kLines) * sizeof(Line);
  return *reinterpret_cast<Line*>(memory_.part(local_rank) + shift);
}

const Descriptor& Segment::descriptor(int local_rank) const {
  return line(local_rank).descriptors[entered_ % 2];
}

void Segment::post() { line(rank_).posted.store(++posted_, std::memory_order_release); }

void Segment::enter(const Descriptor& mine) {
  ++entered_;
  line(rank_).descriptors[entered_ % 2] = mine;
  post();
}

bool Segment::all_posted() {
  // Remembers how far it has looked, so that a poll costs one read of the rank it waits for.
  for (int looked = 0; looked < size(); ++looked) {
    if (line(next_unseen_).posted.load(std::memory_order_acquire) < posted_) return false;
    next_unseen_ = next_unseen_ + 1 == size() ? 0 : next_unseen_ + 1;
  }
  return true;
}

std::string Segment::missing() const {
  std::vector<int> late;
  for (int peer = 0; peer < size(); ++peer) {
    if (line(peer).posted.load(std::memory_order_acquire) < posted_) late.push_back(world_rank(peer));
  }
  if (late.empty()) return {};
  return fmt::format("rank{} {} {} not arrived", late.size() == 1 ? "" : "s", fmt::join(late, ", "),
                     late.size() == 1 ? "has" : "have");
}

std::byte* Segment::staging(int local_rank, unsigned later) const {
  return memory_.part(local_rank) + kHeaderBytes + ((turn_ + later) % 2) * kChunkBytes;
}

std::byte* Segment::result(unsigned later) const {
  return memory_.part(0) + kHeaderBytes + (2 + (turn_ + later) % 2) * kChunkBytes;
}

std::optional<std::uint16_t> Segment::allocate(const Communicator& local, std::size_t bytes) {
  std::optional<SharedMemory> memory = SharedMemory::create(local, std::max<std::size_t>(bytes, 1));
  if (!memory) return std::nullopt;
  const std::uint16_t id = next_id_++;
  allocations_.push_back({id, std::move(*memory), bytes});
  return id;
}

void Segment::release(std::uint16_t id) {
  std::erase_if(allocations_, [id](const Allocation& allocation) { return allocation.id == id; });
}

std::byte* Segment::address(std::uint16_t id, int local_rank, std::size_t offset) const {
  for (const Allocation& allocation : allocations_) {
    if (allocation.id == id) return allocation.memory.part(local_rank) + offset;
  }
  throw Error(
      "a rank used a shared buffer that this rank has released",
      {.subject = "all_reduce", .advice = "keep buffers from allocate() until all ranks are done with them"});
}

void Segment::locate(const void* data, std::size_t bytes, Descriptor& descriptor) const {
  const auto* const first = static_cast<const std::byte*>(data);
  for (const Allocation& allocation : allocations_) {
    const std::byte* const base = allocation.memory.part(rank_);
    if (first < base || first + bytes > base + allocation.bytes) continue;
    descriptor.allocation = static_cast<std::uint16_t>(allocation.id + 1);
    descriptor.offset = static_cast<std::uint64_t>(first - base);
    return;
  }
}

}  // namespace dtrain::comm
