#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/group.hpp"

namespace dtrain::state {

/// Ranks that are threads of one process. They send to and receive from each other, and gather texts; what
/// does not come within 10 s is an error.
class ThreadsJob {
 public:
  explicit ThreadsJob(int ranks) : ranks_(ranks), texts_(static_cast<std::size_t>(ranks)) {}

  /// Runs `action` for each rank, all at once, and returns when all are done. Throws what one of them has
  /// thrown.
  void each(const std::function<void(int rank)>& action) {
    std::vector<std::thread> threads;
    std::exception_ptr thrown;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          action(rank);
        } catch (...) {
          const std::lock_guard lock(mutex_);
          thrown = std::current_exception();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    if (thrown) std::rethrow_exception(thrown);
  }

  std::vector<std::string> all_gather(int rank, const std::string& text) {
    std::unique_lock lock(mutex_);
    texts_.at(static_cast<std::size_t>(rank)) = text;
    ++gathered_;
    changed_.notify_all();
    await(lock, [this] { return gathered_ >= ranks_; });
    return texts_;
  }

  void put(int from, int to, std::string bytes) {
    const std::lock_guard lock(mutex_);
    sent_[{from, to}].push(std::move(bytes));
    ++messages_;
    changed_.notify_all();
  }
  std::string get(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& box = sent_[{from, to}];
    await(lock, [&box] { return !box.empty(); });
    auto bytes = std::move(box.front());
    box.pop();
    return bytes;
  }

  int messages() const { return messages_; }

 private:
  template <typename Condition>
  void await(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    if (!changed_.wait_for(lock, std::chrono::seconds(10), condition))
      throw std::runtime_error("a rank does not come");
  }

  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::queue<std::string>> sent_;
  std::vector<std::string> texts_;
  int gathered_ = 0;
  int messages_ = 0;
};

/// Some ranks of such a job, as one of them sees them. It has no collectives.
class ThreadsGroup final : public comm::Group {
 public:
  /// `members`: in order of their rank in the group.
  ThreadsGroup(ThreadsJob& job, std::vector<int> members, int rank)
      : job_(job), members_(std::move(members)), rank_(rank) {}

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int world_rank_of(int group_rank) const override {
    return members_.at(static_cast<std::size_t>(group_rank));
  }

  comm::Handle send(comm::Buffer values, int to) override {
    if (fails) throw std::runtime_error("a rank is gone");
    job_.put(world_rank_of(rank_), world_rank_of(to),
             {static_cast<const char*>(values.data), values.bytes()});
    return {};
  }
  comm::Handle receive(comm::Buffer values, int from) override {
    const auto bytes = job_.get(world_rank_of(from), world_rank_of(rank_));
    if (bytes.size() != values.bytes()) throw std::runtime_error("a message has another length");
    std::memcpy(values.data, bytes.data(), bytes.size());
    return {};
  }

  std::unique_ptr<comm::SharedBuffer> allocate(std::size_t) override {
    throw std::logic_error("threads have no shared memory");
  }
  comm::Handle all_reduce(comm::Buffer, comm::ReduceOp, comm::Algorithm) override { return none(); }
  comm::Handle reduce_scatter(comm::Buffer, comm::Buffer, comm::ReduceOp) override { return none(); }
  comm::Handle all_gather(comm::Buffer, comm::Buffer) override { return none(); }
  comm::Handle all_to_all(comm::Buffer, comm::Buffer) override { return none(); }
  comm::Handle broadcast(comm::Buffer, int) override { return none(); }
  comm::Handle barrier() override { return none(); }

  bool fails = false;  ///< As when a rank of it is lost.

 private:
  [[noreturn]] static comm::Handle none() { throw std::logic_error("threads have no collectives"); }

  ThreadsJob& job_;
  std::vector<int> members_;
  int rank_;
  std::string name_ = "threads";
};

}  // namespace dtrain::state
