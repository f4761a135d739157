// Memory of a device. Where the group does not reach it, what it exchanges passes through memory of the CPU,
// which the device's driver pins; where the group registers memory, it is the group's.
#include "parallel/memory/exchange_memory.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>

#include "comm/passing_group.hpp"
#include "kernels/device_kernels.hpp"
#include "parallel/device/rank_device.hpp"
#include "parallel/job_of_test.hpp"
#include "support/guarded_device.hpp"

namespace dtrain::parallel {
namespace {

/// Kernels of a device of which only the memory that was pinned counts.
class PinningKernels final : public kernels::DeviceKernels {
 public:
  bool pin(void* memory, std::size_t bytes) const override {
    if (lets) pinned[memory] = bytes;
    return lets;
  }
  void unpin(void* memory) const noexcept override { pinned.erase(memory); }
  void prepare_images(void*, kernels::Element, const std::uint8_t*, std::size_t, const kernels::ImageBatch&,
                      Stream) const override {}
  void dropout(void*, const void*, kernels::Element, const kernels::LogicalSlice&, const kernels::RandomKey&,
               const std::uint32_t*, double, Stream) const override {}
  void cast_scale(void*, kernels::Element, const void*, kernels::Element, std::size_t, float,
                  Stream) const override {}
  void sum_of_squares_and_nonfinite(kernels::SumOfSquares*, void*, const float*, std::size_t,
                                    Stream) const override {}

  bool lets = true;
  mutable std::map<void*, std::size_t> pinned;
};

class ExchangeMemoryTest : public testing::Test {
 protected:
  ExchangeMemoryTest() { kernels::use_device_kernels(&kernels_); }
  ~ExchangeMemoryTest() override { kernels::use_device_kernels(nullptr); }

  static void exchange(const ExchangeMemory& memory) {
    const at::Tensor& values = memory.values();
    EXPECT_TRUE(values.cpu().eq(0).all().item<bool>());
    const int rank = memory.group().rank();
    values.fill_(rank + 1.0);
    const Range part{10, 20};
    memory.take_in(memory.group().all_reduce(memory.outgoing(part), comm::ReduceOp::sum), part);
    const int n = memory.group().size();
    const at::Tensor here = values.cpu();
    EXPECT_EQ(here[9].item<float>(), static_cast<float>(rank + 1)) << "not exchanged";
    EXPECT_EQ(here[19].item<float>(), static_cast<float>(n * (n + 1)) / 2);
  }

  JobOfTest job_;
  PinningKernels kernels_;
};

TEST_F(ExchangeMemoryTest, WhatADeviceExchangesThroughTheCpuIsPinnedAsLongAsItLives) {
  {
    ExchangeMemory memory(job_.data(), 100, at::TensorOptions().dtype(at::kFloat).device(kGuarded));
    ASSERT_EQ(kernels_.pinned.size(), 1U);
    EXPECT_EQ(kernels_.pinned.begin()->first, memory.place({0, 100}).data);
    EXPECT_GE(kernels_.pinned.begin()->second, 100 * sizeof(float));
    exchange(memory);
  }
  EXPECT_TRUE(kernels_.pinned.empty());
}

TEST_F(ExchangeMemoryTest, MemoryThatCannotBePinnedIsExchangedAllTheSame) {
  kernels_.lets = false;
  ExchangeMemory memory(job_.data(), 100, at::TensorOptions().dtype(at::kFloat).device(kGuarded));
  EXPECT_TRUE(kernels_.pinned.empty());
  exchange(memory);
}

/// A group, and its devices' side, of which it says how often that was asked for memory.
class Watched final : public comm::PassingGroup {
 public:
  explicit Watched(comm::Group& group) : PassingGroup(group), there_(*group.on_device()) {}
  comm::Group* on_device() override { return &there_; }
  int asked() const { return there_.asked; }

 private:
  struct There final : comm::PassingGroup {
    using PassingGroup::PassingGroup;
    std::unique_ptr<comm::SharedBuffer> allocate(std::size_t bytes) override {
      ++asked;
      return PassingGroup::allocate(bytes);
    }
    int asked = 0;
  };
  There there_;
};

TEST_F(ExchangeMemoryTest, OnADeviceThatTheGroupReachesItIsTheGroupsWhereThatRegistersMemory) {
  if (job_.data().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  NullSpanSink sink;
  const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const auto cluster = comm::discover_cluster(world, comm::affinity_mask());
  const topology::Mesh mesh(cluster, {.data = world.size()});
  const auto* const transport = open_device("guarded", world).transport;
  ASSERT_NE(transport, nullptr);
  for (const bool registers : {false, true}) {
    auto groups = comm::make_groups(
        world, cluster, mesh, {.timeout_s = 20, .transport = transport, .common_set_up = registers}, sink);
    Watched data(groups.data());
    const ExchangeMemory memory(data, 100, at::TensorOptions().dtype(at::kFloat).device(kGuarded));
    EXPECT_EQ(data.asked(), registers ? 1 : 0);
    EXPECT_EQ(memory.values().device(), kGuarded);
    EXPECT_EQ(memory.place({0, 100}).data, memory.values().data_ptr()) << "it is not copied";
    exchange(memory);
  }
  EXPECT_TRUE(kernels_.pinned.empty());
}

TEST_F(ExchangeMemoryTest, NothingOfTheCpusIsPinned) {
  ExchangeMemory memory(job_.data(), 100, at::TensorOptions().dtype(at::kFloat));
  EXPECT_TRUE(kernels_.pinned.empty());
}

}  // namespace
}  // namespace dtrain::parallel
