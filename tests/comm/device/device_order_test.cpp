// Calls of several communicators on one device per rank, whose kernels run one after the other there, as on a
// GPU that has room for one only: a kernel ends when it runs on all members of its communicator.
#include "comm/device/device_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {

using Order = std::shared_ptr<DeviceOrder>;

struct FakeCommunicator {
  std::string name;
  std::vector<int> members;  ///< Ranks.
};

/// The devices of all ranks, and what carries messages between them.
class FakeTransport {
 public:
  FakeTransport(std::vector<FakeCommunicator> communicators, int ranks)
      : communicators_(std::move(communicators)), devices_(static_cast<std::size_t>(ranks)) {}

  const std::vector<FakeCommunicator>& communicators() const { return communicators_; }

  void launch(int rank, int communicator) {
    const std::lock_guard held(mutex_);
    devices_[static_cast<std::size_t>(rank)].push_back(communicator);
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t c = 0; c < communicators_.size(); ++c) moved = end(static_cast<int>(c)) || moved;
    }
  }

  /// Kernels that will never end if nothing more is launched.
  std::size_t left() {
    const std::lock_guard held(mutex_);
    std::size_t count = 0;
    for (const auto& device : devices_) count += device.size();
    return count;
  }

 private:
  bool end(int communicator) {
    const auto& members = communicators_[static_cast<std::size_t>(communicator)].members;
    const bool runs = std::ranges::all_of(members, [&](int rank) {
      const auto& device = devices_[static_cast<std::size_t>(rank)];
      return !device.empty() && device.front() == communicator;
    });
    if (!runs) return false;
    for (const int rank : members) devices_[static_cast<std::size_t>(rank)].pop_front();
    return true;
  }

  std::vector<FakeCommunicator> communicators_;
  std::mutex mutex_;
  std::vector<std::deque<int>> devices_;
};

/// What one rank does: the program gives the calls in `program`'s order; one thread for each communicator
/// makes them, at moments of its own. Without `order` a thread makes its call as soon as it comes.
void run_rank(FakeTransport& transport, int rank, const std::vector<int>& program, const Order& order,
              std::uint32_t seed) {
  struct Call {
    int communicator;
    std::unique_ptr<DeviceOrder::Place> place;
  };
  std::vector<std::deque<Call>> of_thread(transport.communicators().size());
  for (const int c : program) {
    const auto& communicator = transport.communicators()[static_cast<std::size_t>(c)];
    if (std::ranges::find(communicator.members, rank) == communicator.members.end()) continue;
    auto place = order != nullptr ? std::make_unique<DeviceOrder::Place>(order, communicator.name) : nullptr;
    of_thread[static_cast<std::size_t>(c)].push_back({c, std::move(place)});
  }
  const auto make_calls = [&](std::size_t which) {
    std::mt19937 draws(seed + 17U * static_cast<std::uint32_t>(which));
    const auto pause = [&] { std::this_thread::sleep_for(std::chrono::microseconds(draws() % 100)); };
    for (auto& [c, place] : of_thread[which]) {
      pause();
      while (place != nullptr && !place->is_turn()) std::this_thread::yield();
      pause();  // NCCL's own thread takes a moment to bring the call to the device
      transport.launch(rank, c);
      if (place != nullptr) place->leave();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < of_thread.size(); ++i) threads.emplace_back(make_calls, i);
  for (auto& thread : threads) thread.join();
}

/// Runs all ranks; returns how many kernels never end.
std::size_t kernels_left(const std::vector<FakeCommunicator>& communicators, int ranks,
                         const std::vector<int>& program, bool ordered, std::uint32_t seed) {
  FakeTransport transport(communicators, ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      run_rank(transport, rank, program, ordered ? std::make_shared<DeviceOrder>(30.0) : nullptr,
               seed + 1000U * static_cast<std::uint32_t>(rank));
    });
  }
  for (auto& thread : threads) thread.join();
  return transport.left();
}

std::vector<int> drawn_program(std::size_t communicators, int calls, std::uint32_t seed) {
  std::mt19937 draws(seed);
  std::vector<int> program;
  for (int i = 0; i < calls; ++i) program.push_back(static_cast<int>(draws() % communicators));
  return program;
}

const std::vector<FakeCommunicator> kDataAndTensor = {{"data on GPUs", {0, 1}}, {"tensor on GPUs", {0, 1}}};

TEST(DeviceOrderTest, TwoCommunicatorsWhoseThreadsComeInOtherOrdersOnTwoRanksDoNotDeadlock) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(kernels_left(kDataAndTensor, 2, drawn_program(2, 100, seed), true, seed), 0U)
        << "seed " << seed;
  }
}

TEST(DeviceOrderTest, ACycleOfThreeCommunicatorsOverThreeRanksDoesNotDeadlock) {
  const std::vector<FakeCommunicator> ring = {{"a", {0, 1}}, {"b", {1, 2}}, {"c", {2, 0}}};
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(kernels_left(ring, 3, drawn_program(3, 100, seed), true, seed), 0U) << "seed " << seed;
  }
}

TEST(DeviceOrderTest, WithoutAnOrderTheSameThreadsDeadlock) {
  FakeTransport transport(kDataAndTensor, 2);
  transport.launch(0, 0);
  transport.launch(1, 1);
  transport.launch(0, 1);
  transport.launch(1, 0);
  EXPECT_EQ(transport.left(), 4U);  // the two orders that threads without tickets may come in
}

/// Two ranks with a device each, and two ways between them, on which NCCL's kernels start as it lets them: a
/// kernel starts when all that were given to its device before have started and the one before it on its way
/// has ended there; it ends when its peer's has started.
class FakePipeline {
 public:
  static constexpr std::size_t kWays = 2;  ///< From rank 0 to rank 1, and back.
  /// A message on the way `way`, from this rank or to it.
  struct Call {
    std::size_t way;
    std::unique_ptr<DeviceCall> turn;
    bool given = false, started = false, ended = false;
  };

  explicit FakePipeline(bool one_at_a_time) : one_at_a_time_(one_at_a_time) {}

  Call& submit(std::size_t rank, std::size_t way) {
    Rank& of = ranks_[rank];
    auto turn = one_at_a_time_ ? std::make_unique<DeviceCall>(of.order, "pipe on GPUs", of.ways[way])
                               : std::make_unique<DeviceCall>(of.order, "pipe on GPUs");
    of.calls.push_back(std::make_unique<Call>(way, std::move(turn)));
    return *of.calls.back();
  }

  /// Until nothing changes any more.
  void run() {
    while (step()) {
    }
  }

 private:
  struct Rank {
    std::shared_ptr<DeviceOrder> order = std::make_shared<DeviceOrder>(0.0);
    std::array<std::shared_ptr<DeviceOrder>, kWays> ways = {std::make_shared<DeviceOrder>(0.0),
                                                            std::make_shared<DeviceOrder>(0.0)};
    std::vector<std::unique_ptr<Call>> calls;  ///< As they were submitted.
    std::vector<Call*> given;                  ///< As the device has them.
  };

  static bool may_start(const Rank& rank, const Call& call) {
    for (const Call* before : rank.given) {
      if (before == &call) return true;
      if (!before->started || (before->way == call.way && !before->ended)) return false;
    }
    return false;
  }

  bool step() {
    bool moved = false;
    for (Rank& rank : ranks_) {
      for (const auto& call : rank.calls) {
        if (call->given || !call->turn->is_turn()) continue;
        call->turn->given();
        rank.given.push_back(call.get());
        call->given = moved = true;
      }
      for (Call* call : rank.given)
        if (!call->started && may_start(rank, *call)) call->started = moved = true;
    }
    for (std::size_t way = 0; way < kWays; ++way) {
      Call* const here = running(ranks_[0], way);
      Call* const there = running(ranks_[1], way);
      if (here == nullptr || there == nullptr) continue;
      for (Call* call : {here, there}) {
        call->ended = true;
        call->turn->ended();
      }
      moved = true;
    }
    return moved;
  }

  static Call* running(Rank& rank, std::size_t way) {
    for (Call* call : rank.given)
      if (call->way == way && call->started && !call->ended) return call;
    return nullptr;
  }

  bool one_at_a_time_;
  std::array<Rank, 2> ranks_;
};

/// Rank 1 asks for all messages of rank 0 at once, and answers each; rank 0 sends the next one after the
/// answer. Returns how many answers came.
int answered(bool one_at_a_time, int messages) {
  FakePipeline pipeline(one_at_a_time);
  std::vector<FakePipeline::Call*> asked;
  for (int m = 0; m < messages; ++m) asked.push_back(&pipeline.submit(1, 0));
  for (int m = 0; m < messages; ++m) {
    pipeline.submit(0, 0);
    const auto& answer = pipeline.submit(0, 1);
    pipeline.run();
    if (!asked[static_cast<std::size_t>(m)]->ended) return m;
    pipeline.submit(1, 1);
    pipeline.run();
    if (!answer.ended) return m;
  }
  return messages;
}

TEST(DeviceCallTest, AReceiveThatWaitsInItsStreamKeepsNoAnswerFromStarting) {
  EXPECT_EQ(answered(true, 4), 4);
  EXPECT_EQ(answered(false, 4), 0) << "all receives were given to the device at once";
}

TEST(DeviceCallTest, MessagesOfAWayGoOneAfterTheOtherAndOthersBetweenThem) {
  const auto order = std::make_shared<DeviceOrder>(30.0);
  const auto way = std::make_shared<DeviceOrder>(0.0);
  DeviceCall first(order, "pipe on GPUs", way);
  DeviceCall second(order, "pipe on GPUs", way);
  DeviceCall collective(order, "data on GPUs");
  EXPECT_FALSE(second.is_turn());
  EXPECT_EQ(second.behind(), "pipe on GPUs");
  EXPECT_TRUE(collective.is_turn()) << "no message has asked for its place yet";
  collective.given();
  EXPECT_TRUE(first.is_turn());
  first.given();
  EXPECT_FALSE(second.is_turn()) << "it has not ended";
  first.ended();
  EXPECT_TRUE(second.is_turn());
}

TEST(DeviceCallTest, AMessageThatIsNeverSentKeepsNoneWaiting) {
  const auto order = std::make_shared<DeviceOrder>(30.0);
  const auto way = std::make_shared<DeviceOrder>(0.0);
  auto dropped = std::make_unique<DeviceCall>(order, "pipe on GPUs", way);
  DeviceCall next(order, "pipe on GPUs", way);
  EXPECT_TRUE(dropped->is_turn());
  EXPECT_FALSE(next.is_turn());
  dropped.reset();
  EXPECT_TRUE(next.is_turn());
}

TEST(DeviceOrderTest, TurnsGoByPlaceNotByWhoAsksFirst) {
  const auto order = std::make_shared<DeviceOrder>(30.0);
  DeviceOrder::Place first(order, "data on GPUs");
  DeviceOrder::Place second(order, "pipe on GPUs");
  EXPECT_FALSE(second.is_turn());
  EXPECT_EQ(second.behind(), "data on GPUs");
  EXPECT_TRUE(first.is_turn());
  EXPECT_TRUE(first.is_turn());  // until it leaves
  EXPECT_EQ(first.behind(), "");
  first.leave();
  first.leave();
  EXPECT_TRUE(second.is_turn());
}

TEST(DeviceOrderTest, ACallThatIsNeverMadeKeepsNoneWaiting) {
  const auto order = std::make_shared<DeviceOrder>(30.0);
  auto dropped = std::make_unique<DeviceOrder::Place>(order, "data on GPUs");
  auto also_dropped = std::make_unique<DeviceOrder::Place>(order, "data on GPUs");
  DeviceOrder::Place last(order, "pipe on GPUs");
  also_dropped.reset();
  EXPECT_FALSE(last.is_turn());
  dropped.reset();
  EXPECT_TRUE(last.is_turn());
}

TEST(DeviceOrderTest, AWaitEndsAtItsLimitWithBothCommunicatorsNames) {
  const auto order = std::make_shared<DeviceOrder>(0.2);
  const DeviceOrder::Place never_made(order, "data on GPUs");
  DeviceOrder::Place waits(order, "tensor on GPUs");
  try {
    while (!waits.is_turn()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    FAIL() << "its turn came";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::lost_rank);
    EXPECT_NE(error.problem().find("communicator tensor on GPUs has waited"), std::string::npos)
        << error.what();
    EXPECT_NE(error.problem().find("behind a call of communicator data on GPUs"), std::string::npos);
    EXPECT_NE(error.advice().find("--comm-backend mpi"), std::string::npos);
  }
}

TEST(DeviceOrderTest, TheLimitIsOfOneTurnNotOfAllBefore) {
  const auto order = std::make_shared<DeviceOrder>(1.0);
  std::deque<DeviceOrder::Place> before;
  for (int i = 0; i < 4; ++i) before.emplace_back(order, "data on GPUs");
  DeviceOrder::Place last(order, "tensor on GPUs");
  for (auto& place : before) {  // 1.2 s in all, none of them over the limit
    for (int look = 0; look < 30; ++look) {
      EXPECT_FALSE(last.is_turn());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    place.leave();
  }
  EXPECT_TRUE(last.is_turn());
}

}  // namespace
}  // namespace dtrain::comm
