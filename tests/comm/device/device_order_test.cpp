// Calls of several communicators on one device per rank, whose kernels run one after the other there, as on a
// GPU that has room for one only: a kernel ends when it runs on all members of its communicator.
#include "comm/device/device_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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
