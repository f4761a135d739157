#include "comm/queue.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/watch/health.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

/// Completes once it has been tried `polls` times; writes its name into `finished`.
class Counted final : public Operation {
 public:
  Counted(std::string label, int polls, const void* lane, std::vector<std::string>& finished)
      : label_(std::move(label)), polls_(polls), lane_(lane), finished_(finished) {
    bytes_sent_ = 10;
  }
  bool advance() override {
    if (--polls_ > 0) return false;
    if (label_ == "bad") throw Error("it broke", {.subject = "test"});
    finished_.push_back(label_);
    return true;
  }
  std::string_view name() const override { return "counted"; }
  const void* lane() const override { return lane_; }

 private:
  std::string label_;
  int polls_;
  const void* lane_;
  std::vector<std::string>& finished_;
};

/// As those of a GPU: others may be put behind it once it has been issued, at the third attempt.
class OnDevice final : public Operation {
 public:
  explicit OnDevice(std::atomic<bool>& complete) : complete_(complete) {}
  bool advance() override {
    ++polls_;
    return complete_;
  }
  Follow follow() override { return polls_ < 3 ? Follow::not_yet : Follow::ordered; }
  std::string_view name() const override { return "on_device"; }

 private:
  std::atomic<bool>& complete_;
  int polls_ = 0;
};

/// Never completes.
class Watched final : public Operation {
 public:
  explicit Watched(bool& exists) : exists_(exists) {}
  ~Watched() override { exists_ = false; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  bool advance() override { return false; }
  std::string_view name() const override { return "watched"; }

 private:
  bool& exists_;
};

/// Fails as a library does whose peer is gone, at the second attempt.
class Broken final : public Operation {
 public:
  bool advance() override {
    if (++polls_ < 2) return false;
    throw LibraryError("MPI_ERR_OTHER", {.subject = "test"});
  }
  std::string_view name() const override { return "broken"; }

 private:
  int polls_ = 0;
};

class Spans final : public SpanSink {
 public:
  void enter(Phase phase, std::string_view) override {
    exposed += phase == Phase::exposed_communication ? 1 : 0;
  }
  void leave() override { ++left; }
  void overlapped(Phase phase, std::string_view, std::int64_t start_ns, std::int64_t end_ns) override {
    operations += phase == Phase::communication && end_ns >= start_ns ? 1 : 0;
  }
  void moved(std::int64_t sent, std::int64_t) override { bytes += sent; }
  int exposed = 0;
  int left = 0;
  int operations = 0;
  std::int64_t bytes = 0;
};

std::vector<int> ranks_of(const Communicator& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class QueueTest : public testing::TestWithParam<Drive> {
 protected:
  QueueTest()
      : world_(Communicator::duplicate(MPI_COMM_WORLD)), health_(world_, world_, ranks_of(world_), false) {}
  std::unique_ptr<Operation> counted(std::string label, int polls, const void* lane) {
    return std::make_unique<Counted>(std::move(label), polls, lane, finished_);
  }
  Communicator world_;
  Health health_;
  Spans spans_;
  std::vector<std::string> finished_;
};

TEST_P(QueueTest, KeepsTheOrderOfALaneAndLetsLanesPass) {
  const int lane = 0;
  const int other = 0;
  {
    Queue queue({.drive = GetParam()}, spans_, health_);
    const Handle slow = queue.submit(counted("slow", 50, &lane));
    const Handle behind = queue.submit(counted("behind", 1, &lane));
    const Handle quick = queue.submit(counted("quick", 2, &other));
    behind.wait();
    EXPECT_TRUE(slow.done());
    quick.wait();
    slow.wait();
    EXPECT_TRUE(queue.idle());
  }
  EXPECT_EQ(finished_, (std::vector<std::string>{"quick", "slow", "behind"}));
  EXPECT_EQ(spans_.operations, 3);
  EXPECT_EQ(spans_.bytes, 30);
  EXPECT_EQ(spans_.exposed, spans_.left);
}

TEST_P(QueueTest, DrainWaitsForAll) {
  Queue queue({.drive = GetParam()}, spans_, health_);
  const int lane = 0;
  for (int k = 0; k < 10; ++k) queue.submit(counted("x", 3, k % 2 == 0 ? &lane : nullptr));
  queue.drain();
  EXPECT_EQ(finished_.size(), 10U);
  EXPECT_NO_THROW(Handle().wait());
  EXPECT_TRUE(Handle().done());
}

TEST_P(QueueTest, WhoFollowsWaitsForNoMoreThanTheIssue) {
  Queue queue({.drive = GetParam()}, spans_, health_);
  std::atomic<bool> complete = false;
  const Handle handle = queue.submit(std::make_unique<OnDevice>(complete));
  handle.follow();
  EXPECT_FALSE(handle.done());
  handle.follow();
  complete = true;
  handle.wait();
  EXPECT_NO_THROW(handle.follow());
  const Handle on_cpu = queue.submit(counted("on_cpu", 50, nullptr));
  on_cpu.follow();
  EXPECT_TRUE(on_cpu.done());
  world_.barrier();  // before a failure, of which peers would hear within what is expected above
  const Handle bad = queue.submit(counted("bad", 5, nullptr));
  complete = false;
  EXPECT_THROW(queue.submit(std::make_unique<OnDevice>(complete)).wait(), Error);
  EXPECT_THROW(bad.follow(), Error);
  world_.barrier();
}

TEST_P(QueueTest, OneFailureFailsAllThatFollows) {
  Queue queue({.drive = GetParam()}, spans_, health_);
  const int lane = 0;
  const Handle bad = queue.submit(counted("bad", 5, &lane));
  EXPECT_THROW(bad.wait(), Error);
  EXPECT_TRUE(queue.failed());
  EXPECT_THROW(bad.wait(), Error);
  EXPECT_THROW(queue.progress(), Error);
  EXPECT_THROW(queue.submit(counted("later", 1, nullptr)), Error);
  EXPECT_TRUE(finished_.empty());
  world_.barrier();
}

TEST_P(QueueTest, WhatIsDroppedIsGoneAndPeersAreNotTold) {
  Queue queue({.drive = GetParam()}, spans_, health_);
  bool exists = true;
  const Handle endless = queue.submit(std::make_unique<Watched>(exists));
  queue.drop("the memory goes");
  EXPECT_FALSE(exists);
  EXPECT_THROW(endless.wait(), Error);
  EXPECT_THROW(queue.submit(counted("later", 1, nullptr)), Error);
  world_.barrier();
  EXPECT_NO_THROW(health_.check());
  world_.barrier();
}

TEST_P(QueueTest, ALibrarysErrorWaitsForADeathThatExplainsIt) {
  Queue queue({.drive = GetParam()}, spans_, health_);
  const Handle broken = queue.submit(std::make_unique<Broken>());
  if (world_.rank() == 0 && world_.size() > 1) health_.report_failure(1);  // as seen a moment later
  try {
    broken.wait();
    ADD_FAILURE() << "the error was not thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), world_.size() > 1 ? ExitCode::lost_rank : ExitCode::failure);
  }
  world_.barrier();
}

TEST_P(QueueTest, ALimitEndsTheWait) {
  Queue queue({.drive = GetParam(), .timeout_s = 0.05}, spans_, health_);
  const Handle endless = queue.submit(counted("endless", 2'000'000'000, nullptr));
  EXPECT_THROW(endless.wait(), Error);
  world_.barrier();
}

TEST(QueueSpanTest, TheComputeThreadIsChargedOnlyForRealWork) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  Health health(world, world, ranks_of(world), false);
  Spans spans;
  std::vector<std::string> finished;
  Queue queue({}, spans, health);
  queue.progress();
  Handle().wait();
  EXPECT_EQ(spans.exposed, 0);
  const Handle handle = queue.submit(std::make_unique<Counted>("x", 10, nullptr, finished));
  handle.wait();
  EXPECT_EQ(spans.exposed, 1);
  handle.wait();
  EXPECT_EQ(spans.exposed, 1);
  world.barrier();
}

// As a module for GPUs does. The driver sleeps by then: nothing else would wake it.
TEST(QueueModuleTest, AnOperationOfAModuleWakesTheProgramsDriver) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  Health health(world, world, ranks_of(world), false);
  Spans spans;
  Queue queue({.drive = Drive::thread}, spans, health);
  void* const module = dlopen(DTRAIN_QUEUE_ELSEWHERE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  using Submit = void (*)(Queue&, Handle&);
  const auto submit = reinterpret_cast<Submit>(dlsym(module, "dtrain_test_submit"));
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Handle handle;
    submit(queue, handle);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!handle.done() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    ASSERT_TRUE(handle.done());
  }
  world.barrier();
}

INSTANTIATE_TEST_SUITE_P(Drives, QueueTest, testing::Values(Drive::inline_, Drive::thread),
                         [](const auto& param) {
                           return param.param == Drive::thread ? "thread" : "inline";
                         });

}  // namespace
}  // namespace dtrain::comm
