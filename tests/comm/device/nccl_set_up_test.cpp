// How groups on GPUs are set up, with an NCCL that is none (fake_nccl.cpp): which communicators are made, and
// that what is exchanged goes where it should.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device/fake_nccl.hpp"
#include "comm/device/nccl/nccl_group.hpp"
#include "comm/job.hpp"

namespace dtrain::comm {
namespace {

/// The way of each neighbour on the ring of a group, and back.
int channels_of(int size) { return size == 1 ? 0 : size == 2 ? 2 : 4; }

class NcclSetUpTest : public testing::Test {
 protected:
  NcclSetUpTest() { calls() = {}; }
  static FakeNccl& calls() { return FakeNccl::of_this_rank(); }

  /// Of the ranks with the same color; `common`: null, or what this group has in common with others.
  std::unique_ptr<Group> group(const Communicator& ranks, const NcclExtras& extras, CommonSetUp* common,
                               bool messages) {
    std::vector<int> members(static_cast<std::size_t>(ranks.size()));
    std::iota(members.begin(), members.end(), 0);
    return std::make_unique<NcclGroup>(DeviceGroupRequest{.name = "test",
                                                          .ranks = &ranks,
                                                          .world_ranks = members,
                                                          .queue = &job_.groups.queue(),
                                                          .messages = messages,
                                                          .timeout_s = 30,
                                                          .common = common},
                                       extras);
  }

  static Buffer buffer_of(SharedBuffer& memory) {
    return {memory.data(), memory.bytes() / sizeof(float), DataType::float32};
  }

  /// A sum over the group, and a message along its ring in each direction.
  void exchanges(Group& of, bool messages) {
    const int n = of.size();
    const auto memory = of.allocate(8 * sizeof(float));
    auto* const values = static_cast<float*>(memory->data());
    std::fill_n(values, 8, static_cast<float>(of.rank() + 1));
    of.all_reduce(buffer_of(*memory), ReduceOp::sum, Algorithm::automatic).wait();
    EXPECT_EQ(values[7], static_cast<float>(n * (n + 1) / 2));
    if (!messages || n == 1) return;
    for (const int way : {1, n - 1}) {
      const int to = (of.rank() + way) % n;
      const int from = (of.rank() + n - way) % n;
      const auto out = of.allocate(sizeof(float));
      const auto in = of.allocate(sizeof(float));
      *static_cast<float*>(out->data()) = static_cast<float>(of.rank());
      const Handle sent = of.send(buffer_of(*out), to);
      of.receive(buffer_of(*in), from).wait();
      sent.wait();
      EXPECT_EQ(*static_cast<float*>(in->data()), static_cast<float>(from)) << way;
    }
  }

  Job job_{1, {.drive = Drive::thread, .timeout_s = 30}};
};

TEST_F(NcclSetUpTest, AGroupByItselfHasAnIdForEachCommunicator) {
  {
    const auto all = group(job_.world, FakeNccl::extras(), nullptr, true);
    exchanges(*all, true);
    EXPECT_EQ(calls().made, 1 + channels_of(job_.size()));
    EXPECT_EQ(calls().urgent_streams, calls().made) << "one each, before the compute stream's";
    EXPECT_EQ(calls().split, 0);
    EXPECT_FALSE(all->registers_memory());
    EXPECT_EQ(calls().registered + calls().allocated, 0) << "its memory is plain";
    EXPECT_EQ(calls().sharing, 0);
  }
  EXPECT_EQ(calls().destroyed, calls().made);
}

TEST_F(NcclSetUpTest, WithACommonSetUpTheWaysToNeighboursShareNothing) {
  {
    std::shared_ptr<DeviceRoot> root;
    CommonSetUp common{.job = job_.world, .color = 0, .root = root};
    const auto all = group(job_.world, FakeNccl::extras(), &common, true);
    EXPECT_EQ(root, nullptr) << "the group has all ranks";
    exchanges(*all, true);
    EXPECT_EQ(calls().made, 1 + channels_of(job_.size()));
    EXPECT_EQ(calls().split, 0);
    EXPECT_EQ(calls().sharing, 0) << "the group has no other to share with";
    EXPECT_EQ(calls().messages_behind_others, 0) << "an answer would wait for what its asker has not sent";
    EXPECT_EQ(calls().urgent_streams, calls().made);
    EXPECT_TRUE(all->registers_memory());
    EXPECT_GT(calls().registered, 0);
    EXPECT_EQ(calls().registered, calls().allocated);
  }
  EXPECT_EQ(calls().destroyed, calls().made);
  EXPECT_EQ(calls().deregistered, calls().registered);
  EXPECT_EQ(calls().freed, calls().allocated);
}

TEST_F(NcclSetUpTest, GroupsOfAMeshAreSplitFromOneCommunicatorOfAllRanks) {
  if (job_.size() != 4) GTEST_SKIP() << "for a mesh of 2 x 2";
  std::shared_ptr<DeviceRoot> root;
  std::vector<std::unique_ptr<Group>> groups;
  for (const int stride : {1, 2}) {
    const int color = stride == 1 ? job_.rank() / 2 : job_.rank() % 2;
    const Communicator ranks = job_.world.split(color, job_.rank());
    CommonSetUp common{.job = job_.world, .color = color, .root = root};
    groups.push_back(group(ranks, FakeNccl::extras(), &common, stride == 2));
  }
  EXPECT_EQ(calls().sharing, 1) << "one id for the groups of the job";
  EXPECT_EQ(calls().children, 2);
  EXPECT_EQ(calls().made, 1 + 2) << "and one to a neighbour, and one back";
  exchanges(*groups[0], false);
  exchanges(*groups[1], true);
  EXPECT_EQ(calls().messages_behind_others, 0);
  while (!groups.empty()) groups.pop_back();
  root.reset();
  EXPECT_EQ(calls().destroyed, 5);
}

TEST_F(NcclSetUpTest, ALibraryWithoutTheseFunctionsDoesAsBefore) {
  std::shared_ptr<DeviceRoot> root;
  for (const bool splits : {false, true}) {
    calls() = {};
    auto extras = FakeNccl::extras();
    if (splits) {
      extras.register_memory = nullptr;
    } else {
      extras.split = nullptr;
    }
    CommonSetUp common{.job = job_.world, .color = 0, .root = root};
    const auto all = group(job_.world, extras, &common, true);
    exchanges(*all, true);
    EXPECT_EQ(calls().made, 1 + channels_of(job_.size()));
    EXPECT_EQ(calls().registered > 0, !splits);
  }
}

TEST_F(NcclSetUpTest, AReceiveIsGivenToTheGpuWhenItsMessageIsSent) {
  if (job_.size() != 2) GTEST_SKIP() << "for two ranks";
  const auto pair = group(job_.world, FakeNccl::extras(), nullptr, true);
  const auto memory = pair->allocate(4 * sizeof(float));
  auto* const values = static_cast<float*>(memory->data());
  const auto element = [&](std::size_t i) { return Buffer{values + i, 1, DataType::float32}; };
  calls().receives_that_wait = 0;
  std::fill_n(values, 4, 0.0F);
  if (job_.rank() == 0) {
    const Handle answer = pair->receive(element(2), 1);  // long before it comes
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    values[0] = 1.5F;
    values[1] = 2.5F;
    const Handle first = pair->send(element(0), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    calls().busy_looks = 40;  // what is to be sent is not made yet
    const Handle second = pair->send(element(1), 1);
    for (const Handle& handle : {first, second, answer}) handle.wait();
    EXPECT_EQ(values[2], 7.0F);
  } else {
    const Handle first = pair->receive(element(0), 0);
    const Handle second = pair->receive(element(1), 0);
    first.wait();
    second.wait();
    EXPECT_EQ(values[0], 1.5F);
    EXPECT_EQ(values[1], 2.5F);
    values[2] = 7.0F;
    pair->send(element(2), 0).wait();
  }
  EXPECT_EQ(calls().receives_that_wait, 0);
  job_.world.barrier();
}

TEST_F(NcclSetUpTest, MemoryIsFreedWhenTheGpuHasDoneWhatUsesIt) {
  std::shared_ptr<DeviceRoot> root;
  CommonSetUp common{.job = job_.world, .color = 0, .root = root};
  const auto all = group(job_.world, FakeNccl::extras(), &common, false);
  auto memory = all->allocate(64);
  calls().busy_looks = 3;
  memory.reset();
  EXPECT_EQ(calls().busy_looks, 0);
  EXPECT_EQ(calls().deregistered, 1);
  EXPECT_EQ(calls().freed, 1);
}

TEST_F(NcclSetUpTest, MemoryMayOutliveItsGroup) {
  std::unique_ptr<SharedBuffer> memory;
  {
    std::shared_ptr<DeviceRoot> root;
    CommonSetUp common{.job = job_.world, .color = 0, .root = root};
    memory = group(job_.world, FakeNccl::extras(), &common, false)->allocate(64);
  }
  EXPECT_EQ(calls().destroyed, 1);
  memory.reset();
  EXPECT_EQ(calls().deregistered, 0) << "there is nothing to tell any more";
  EXPECT_EQ(calls().freed, 1);
}

TEST(NcclExtrasTest, AreFoundByTheirNames) {
  std::vector<std::string> asked;
  const auto found = NcclExtras::found_by([&](const char* name) -> void* {
    asked.emplace_back(name);
    return std::string(name) == "ncclCommSplit" ? reinterpret_cast<void*>(FakeNccl::extras().split) : nullptr;
  });
  EXPECT_EQ(found.split, FakeNccl::extras().split);
  EXPECT_FALSE(found.registers());
  EXPECT_EQ(asked, (std::vector<std::string>{"ncclCommSplit", "ncclMemAlloc", "ncclMemFree",
                                             "ncclCommRegister", "ncclCommDeregister"}));
}

}  // namespace
}  // namespace dtrain::comm
