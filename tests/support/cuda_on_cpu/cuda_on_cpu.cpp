#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "cuda_runtime.h"

namespace dtrain::cuda_on_cpu {
namespace {

constexpr unsigned kWarp = 32;
constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kMostThreads = 1024;

/// What a thread waits for.
enum class Wait { nothing, block, warp, end };

struct Thread {
  ucontext_t context{};
  jmp_buf place{};  // where it goes on
  bool has_begun = false;
  std::unique_ptr<unsigned char[]> stack;
  dim3 index;
  Wait wait = Wait::nothing;
  std::source_location where;
  std::array<unsigned char, kMostBytes> given{};
};

class Device {
 public:
  void run(const dim3& blocks, const dim3& threads, const std::function<void()>& thread) {
    const std::size_t count = std::size_t{threads.x} * threads.y * threads.z;
    require(count > 0 && count <= kMostThreads, "a launch with " + std::to_string(count) + " threads a block",
            {.subject = "cuda_on_cpu"});
    gridDim = blocks;
    blockDim = threads;
    code_ = &thread;
    while (threads_.size() < count) {
      threads_.emplace_back();
      threads_.back().stack = std::make_unique_for_overwrite<unsigned char[]>(kStackBytes);
    }
    count_ = count;
    const std::size_t grid = std::size_t{blocks.x} * blocks.y * blocks.z;
    for (std::size_t b = 0; b < grid; ++b) {
      const std::size_t block = reverse_ ? grid - 1 - b : b;
      blockIdx = {static_cast<unsigned>(block % blocks.x), static_cast<unsigned>(block / blocks.x % blocks.y),
                  static_cast<unsigned>(block / blocks.x / blocks.y)};
      ++block_number_;
      run_block(block % 2 == 1);
    }
  }

  void wait(Wait wait, const std::source_location& where) {
    running_->wait = wait;
    running_->where = where;
    leave();
  }

  void exchange(void* own, std::size_t bytes, unsigned from, const std::source_location& where) {
    std::memcpy(running_->given.data(), own, bytes);
    const std::size_t warp = number_of(*running_) / kWarp * kWarp;
    wait(Wait::warp, where);
    std::memcpy(own, taken_[warp + from % kWarp].data(), bytes);
  }

  unsigned lane() const { return static_cast<unsigned>(number_of(*running_) % kWarp); }
  std::uint64_t block_number() const { return block_number_; }
  void reverse(bool reverse) { reverse_ = reverse; }
  const std::function<void()>& code() const { return *code_; }

 private:
  std::size_t number_of(const Thread& thread) const {
    return static_cast<std::size_t>(&thread - threads_.data());
  }

  static void run_thread();

  // Between fibers by setjmp(), which asks the system for nothing; a sanitizer knows swapcontext() only.
#if defined(__SANITIZE_ADDRESS__)
  void leave() { swapcontext(&running_->context, &scheduler_); }
  void resume() { swapcontext(&scheduler_, &running_->context); }
#else
  void leave() {
    if (_setjmp(running_->place) == 0) _longjmp(scheduler_place_, 1);
  }
  void resume() {
    if (_setjmp(scheduler_place_) != 0) return;
    if (running_->has_begun) _longjmp(running_->place, 1);
    running_->has_begun = true;
    setcontext(&running_->context);
  }
#endif

  void begin(std::size_t t) {
    Thread& thread = threads_[t];
    thread.index = {static_cast<unsigned>(t % blockDim.x), static_cast<unsigned>(t / blockDim.x % blockDim.y),
                    static_cast<unsigned>(t / blockDim.x / blockDim.y)};
    const bool has_ended = thread.wait == Wait::end;  // and begins again at the end of run_thread()
    thread.wait = Wait::nothing;
    if (has_ended) return;
    thread.has_begun = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStackBytes;
    makecontext(&thread.context, &Device::run_thread, 0);
  }

  void run_block(bool backwards) {
    for (std::size_t t = 0; t < count_; ++t) begin(t);
    const std::size_t warps = (count_ + kWarp - 1) / kWarp;
    do {
      for (std::size_t i = 0; i < warps; ++i) run_warp((backwards ? warps - 1 - i : i) * kWarp, backwards);
    } while (wake_block());
    for (std::size_t t = 0; t < count_; ++t) {
      require(threads_[t].wait == Wait::end,
              "thread " + std::to_string(t) + " waits in line " + std::to_string(threads_[t].where.line()) +
                  " for threads that are elsewhere or have ended",
              {.subject = std::string("kernel of ") + threads_[t].where.file_name()});
    }
  }

  /// Whether threads [begin, end) all wait for `wait` at one place.
  bool all_wait(std::size_t begin, std::size_t end, Wait wait) const {
    const Thread& first = threads_[begin];
    return std::all_of(&threads_[begin], &threads_[end - 1] + 1, [&](const Thread& thread) {
      return thread.wait == wait && thread.where.line() == first.where.line() &&
             thread.where.column() == first.where.column();
    });
  }

  /// As far as the warp, whose first thread is `warp`, goes without the others.
  void run_warp(std::size_t warp, bool backwards) {
    const std::size_t end = std::min(warp + kWarp, count_);
    do {
      for (std::size_t i = warp; i < end; ++i) {
        Thread& thread = threads_[backwards ? warp + end - 1 - i : i];
        if (thread.wait != Wait::nothing) continue;
        running_ = &thread;
        threadIdx = thread.index;
        resume();
      }
    } while (wake_warp(warp));
  }

  /// Whether the warp goes on: all its 32 lanes have given something.
  bool wake_warp(std::size_t warp) {
    if (warp + kWarp > count_ || !all_wait(warp, warp + kWarp, Wait::warp)) return false;
    for (std::size_t t = warp; t < warp + kWarp; ++t) {
      taken_[t] = threads_[t].given;
      threads_[t].wait = Wait::nothing;
    }
    return true;
  }

  bool wake_block() {
    if (!all_wait(0, count_, Wait::block)) return false;
    for (std::size_t t = 0; t < count_; ++t) threads_[t].wait = Wait::nothing;
    return true;
  }

  std::vector<Thread> threads_;
  std::size_t count_ = 0;
  Thread* running_ = nullptr;
  ucontext_t scheduler_{};
  jmp_buf scheduler_place_{};
  const std::function<void()>* code_ = nullptr;
  std::array<std::array<unsigned char, kMostBytes>, kMostThreads> taken_{};
  std::uint64_t block_number_ = 0;
  bool reverse_ = false;
};

Device& device() {
  static Device device;
  return device;
}

/// The fiber of a thread in every block.
void Device::run_thread() {
  for (;;) {
    device().code()();
    device().wait(Wait::end, std::source_location::current());
  }
}

}  // namespace

void run(const dim3& blocks, const dim3& threads, const std::function<void()>& thread) {
  device().run(blocks, threads, thread);
}
void meet_block(const std::source_location& where) { device().wait(Wait::block, where); }
void exchange(void* own, std::size_t bytes, unsigned from, const std::source_location& where) {
  device().exchange(own, bytes, from, where);
}
unsigned lane() { return device().lane(); }
std::uint64_t block_number() { return device().block_number(); }
void poison(void* memory, std::size_t bytes) { std::memset(memory, 0xFF, bytes); }
void reverse_blocks(bool reverse) { device().reverse(reverse); }

}  // namespace dtrain::cuda_on_cpu

namespace {

// Around what cudaMalloc() gives: the size, then bytes that must stay; as many behind it.
constexpr std::size_t kGuardBytes = 4096;
constexpr unsigned char kGuard = 0xA5;

bool is_untouched(const unsigned char* begin, std::size_t bytes) {
  return std::all_of(begin, begin + bytes, [](unsigned char byte) { return byte == kGuard; });
}

}  // namespace

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const std::size_t whole = (2 * kGuardBytes + bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
  auto* const begin = static_cast<unsigned char*>(std::aligned_alloc(kGuardBytes, whole));
  if (begin == nullptr) return cudaErrorUnknown;
  std::memset(begin, kGuard, whole);
  std::memcpy(begin, &bytes, sizeof bytes);
  *memory = begin + kGuardBytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  auto* const given = static_cast<unsigned char*>(memory);
  std::size_t bytes = 0;
  std::memcpy(&bytes, given - kGuardBytes, sizeof bytes);
  const bool whole = is_untouched(given - kGuardBytes + sizeof bytes, kGuardBytes - sizeof bytes) &&
                     is_untouched(given + bytes, kGuardBytes);
  std::free(given - kGuardBytes);
  return whole ? cudaSuccess : cudaErrorUnknown;
}
