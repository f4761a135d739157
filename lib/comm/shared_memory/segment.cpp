#include "comm/shared_memory/segment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <new>

#include "core/counted.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr std::size_t kHeaderBytes = 4096;

// Large chunks have left the writer's own cache when the others read them, which doubles the speed (measured:
// 36 MB in 22 ms by chunks of 256 KiB, 10 ms from 512 KiB on). The second bound keeps six groups of any
// number of ranks below the 64 MiB that containers give to /dev/shm.
constexpr std::size_t kMostChunkBytes = std::size_t{512} << 10;
constexpr std::size_t kMostStagedBytes = std::size_t{2} << 20;  // of one half, all ranks together

std::size_t chunk_bytes_for(int ranks) {
  const std::size_t even = kMostStagedBytes / static_cast<std::size_t>(ranks) / 4096 * 4096;
  return std::clamp<std::size_t>(even, 4096, kMostChunkBytes);
}

/// Of one rank's slice of a reduced chunk, cut at multiples of 64 bytes.
std::size_t slice_bytes(std::size_t chunk_bytes, int ranks) {
  return (chunk_bytes / static_cast<std::size_t>(ranks) / 64 + 1) * 64;
}

/// Linux's wait on a word of shared memory: FUTEX_WAIT returns at once unless the word is `value`.
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* limit) {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  ::syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

SharedMemory create(const Communicator& local) {
  std::optional<SharedMemory> memory = SharedMemory::create(local, Segment::bytes_per_rank(local.size()));
  require(
      memory.has_value(), "the ranks of this node cannot share memory",
      {.subject = "/dev/shm", .advice = "make room there, or start the container with a larger --shm-size"});
  return std::move(*memory);
}

}  // namespace

/// Its line, two halves to stage into, two slices of results.
std::size_t Segment::bytes_per_rank(int ranks) {
  const std::size_t chunk = chunk_bytes_for(ranks);
  return kHeaderBytes + 2 * chunk + 2 * slice_bytes(chunk, ranks);
}

Segment::Segment(const Communicator& local, std::vector<int> world_ranks, Traffic* traffic)
    : rank_(local.rank()),
      chunk_bytes_(chunk_bytes_for(local.size())),
      world_ranks_(std::move(world_ranks)),
      traffic_(traffic),
      with_all_(traffic == nullptr ? nullptr : &traffic->among(world_ranks_)),
      memory_(create(local)),
      pointers_(static_cast<std::size_t>(local.size())) {
  new (&line(rank_)) Line{};
  local.barrier();
}

/// Shifted from rank to rank: parts lie at equal distances, and lines at such distances share few cache sets.
Segment::Line& Segment::line(int local_rank) const {
  constexpr int kLines = static_cast<int>((kHeaderBytes - sizeof(Gate)) / sizeof(Line));
  const auto shift = static_cast<std::size_t>(local_rank % kLines) * sizeof(Line);
  return *reinterpret_cast<Line*>(memory_.part(local_rank) + shift);
}

/// Behind the lines of local rank 0's header.
Segment::Gate& Segment::gate() const {
  return *reinterpret_cast<Gate*>(memory_.part(0) + kHeaderBytes - sizeof(Gate));
}

const Descriptor& Segment::descriptor(int local_rank) const {
  return line(local_rank).descriptors[entered_ % 2];
}

// Sequentially consistent, as in sleep(): either the sleeper sees this post or the last poster sees the
// sleeper.
void Segment::post() {
  line(rank_).posted.store(++posted_, std::memory_order_seq_cst);
  if (gate().sleepers.load(std::memory_order_seq_cst) == 0 || !all_posted()) return;
  gate().opened.fetch_add(1, std::memory_order_seq_cst);
  futex(gate().opened, FUTEX_WAKE, INT_MAX, nullptr);
}

bool Segment::sleep(double limit_s) {
  const auto ns = static_cast<long>(limit_s * 1e9);
  const timespec limit = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  gate().sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t seen = gate().opened.load(std::memory_order_seq_cst);
  if (!all_posted()) futex(gate().opened, FUTEX_WAIT, seen, &limit);
  gate().sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return true;
}

void Segment::enter(const Descriptor& mine) {
  ++entered_;
  line(rank_).descriptors[entered_ % 2] = mine;
  post();
}

bool Segment::all_posted() {
  // Remembers how far it has looked, so that a poll costs one read of the rank it waits for.
  for (int looked = 0; looked < size(); ++looked) {
    if (line(next_unseen_).posted.load(std::memory_order_seq_cst) < posted_) return false;
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
  return fmt::format("{} {} not arrived", numbered("rank", late), late.size() == 1 ? "has" : "have");
}

std::byte* Segment::staging(int local_rank, unsigned later) const {
  return memory_.part(local_rank) + kHeaderBytes + ((turn_ + later) % 2) * chunk_bytes_;
}

std::byte* Segment::result(int local_rank, unsigned later) const {
  const std::size_t half = ((turn_ + later) % 2) * slice_bytes(chunk_bytes_, size());
  return memory_.part(local_rank) + kHeaderBytes + 2 * chunk_bytes_ + half;
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
