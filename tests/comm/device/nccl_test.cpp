// The collectives over NCCL on a GPU per rank, or on shared ones where NCCL lets them be shared; skipped with
// the reason elsewhere.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "comm/device/cuda_module.hpp"
#include "comm/job.hpp"
#include "core/error.hpp"
#include "core/slice.hpp"

namespace dtrain::comm {
namespace {

constexpr std::size_t kMany = 1 << 20;

class NcclTest : public testing::Test {
 protected:
  NcclTest() : reason_(CudaModule::why_no_driver()) {
    if (!reason_.empty()) return;
    module_ = std::make_unique<CudaModule>();
    reason_ = module_->device_problem();
    if (!reason_.empty()) return;
    const int devices = module_->device_count();
    const int ranks = job_.size();
    const bool shares = devices < ranks;
    if (shares && !module_->lets_ranks_share_devices()) {
      reason_ = fmt::format("{} ranks but {} GPUs, which {} does not let them share", ranks, devices,
                            module_->description());
      return;
    }
    std::vector<int> everyone(static_cast<std::size_t>(ranks));
    std::iota(everyone.begin(), everyone.end(), 0);
    group_ = module_->make_group({.name = "test",
                                  .ranks = &job_.world,
                                  .world_ranks = everyone,
                                  .queue = &job_.groups.queue(),
                                  .device = job_.rank() % devices,
                                  .messages = true,
                                  .shares_devices = shares,
                                  .timeout_s = 60});
  }
  void SetUp() override {
    if (!reason_.empty()) GTEST_SKIP() << reason_;
  }

  int rank() const { return job_.rank(); }
  int size() const { return job_.size(); }

  /// Device memory with `values`.
  std::unique_ptr<SharedBuffer> on_device(const std::vector<float>& values) {
    auto buffer = group_->allocate(values.size() * sizeof(float));
    cudaMemcpy(buffer->data(), values.data(), buffer->bytes(), cudaMemcpyHostToDevice);
    return buffer;
  }
  static std::vector<float> from_device(SharedBuffer& buffer) {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    cudaMemcpy(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost);
    return values;
  }
  static Buffer whole(SharedBuffer& buffer) {
    return {buffer.data(), buffer.bytes() / sizeof(float), DataType::float32};
  }

  Job job_{1, {.drive = Drive::thread, .timeout_s = 60}};
  std::string reason_;
  std::unique_ptr<CudaModule> module_;
  std::unique_ptr<Group> group_;
};

TEST_F(NcclTest, ReducesBroadcastsAndPassesTheBarrier) {
  const auto mine = static_cast<float>(rank() + 1);
  const int n = size();
  const auto buffer = on_device(std::vector<float>(10007, mine));
  group_->all_reduce(whole(*buffer), ReduceOp::sum).wait();
  EXPECT_EQ(from_device(*buffer), std::vector<float>(10007, static_cast<float>(n * (n + 1) / 2)));
  const auto other = on_device(std::vector<float>(33, mine));
  group_->broadcast(whole(*other), n - 1).wait();
  EXPECT_EQ(from_device(*other), std::vector<float>(33, static_cast<float>(n)));
  group_->barrier().wait();
}

TEST_F(NcclTest, CutsUnevenPartsAsPartOf) {
  const std::size_t count = 10007;
  const Range part = part_of(static_cast<std::int64_t>(count), rank(), size());
  const auto input = on_device(std::vector<float>(count, 1));
  const auto output = on_device(std::vector<float>(static_cast<std::size_t>(part.size()), 0));
  group_->reduce_scatter(whole(*input), whole(*output), ReduceOp::sum).wait();
  group_->all_gather(whole(*output), whole(*input)).wait();
  EXPECT_EQ(from_device(*input), std::vector<float>(count, static_cast<float>(size())));
}

TEST_F(NcclTest, MessagesCrossInBothDirections) {
  if (size() < 2) GTEST_SKIP() << "nobody to send to";
  const auto out = on_device(std::vector<float>(kMany, static_cast<float>(rank())));
  const auto in = on_device(std::vector<float>(kMany, -1));
  const Handle sent = group_->send(whole(*out), (rank() + 1) % size());
  group_->receive(whole(*in), (rank() + size() - 1) % size()).wait();
  sent.wait();
  EXPECT_EQ(from_device(*in)[12345], static_cast<float>((rank() + size() - 1) % size()));
}

// As in a pipeline: the next messages' room is there long before they come.
TEST_F(NcclTest, ReceivesThatWaitKeepNoSendWaiting) {
  if (size() < 2) GTEST_SKIP() << "nobody to send to";
  const int before = rank() - 1;
  const int behind = rank() + 1;
  std::vector<std::unique_ptr<SharedBuffer>> in;
  std::vector<Handle> received;
  for (int message = 0; message < 3 && before >= 0; ++message) {
    in.push_back(on_device(std::vector<float>(kMany, -1)));
    received.push_back(group_->receive(whole(*in.back()), before));
  }
  const auto answer = on_device(std::vector<float>(kMany, -1));
  for (int message = 0; message < 3; ++message) {
    if (before >= 0) received[static_cast<std::size_t>(message)].wait();
    if (behind == size()) {
      group_->send(whole(*in[static_cast<std::size_t>(message)]), before).wait();
      continue;
    }
    const auto own = on_device(std::vector<float>(kMany, static_cast<float>(message)));
    const auto& passed = before >= 0 ? in[static_cast<std::size_t>(message)] : own;
    const Handle sent = group_->send(whole(*passed), behind);
    group_->receive(whole(*answer), behind).wait();  // only then does the first rank send again
    sent.wait();
    if (before >= 0) group_->send(whole(*answer), before).wait();
    EXPECT_EQ(from_device(*answer)[kMany - 1], static_cast<float>(message));
  }
}

// Both wait for a message that does not come, and on the GPU for it.
TEST_F(NcclTest, AFailureOfTheQueueFreesTheGpu) {
  if (size() != 2) GTEST_SKIP() << "for two ranks";
  const auto in = on_device(std::vector<float>(kMany, -1));
  group_->receive(whole(*in), 1 - rank());
  if (rank() == 0) group_->all_reduce(whole(*in), ReduceOp::sum).follow();  // waits on the GPU
  job_.world.barrier();
  job_.groups.queue().fail("nobody sends");
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_THROW(group_->send(whole(*in), 1 - rank()), Error);
  job_.world.barrier();
}

TEST_F(NcclTest, WhoFollowsComesAfterItOnTheGpu) {
  const auto values = on_device(std::vector<float>(kMany, 1));
  const auto copy = on_device(std::vector<float>(kMany, -1));
  for (int i = 0; i < 3; ++i) group_->all_reduce(whole(*values), ReduceOp::sum).follow();
  cudaMemcpyAsync(copy->data(), values->data(), copy->bytes(), cudaMemcpyDeviceToDevice, cudaStreamLegacy);
  const auto n = static_cast<float>(size());
  EXPECT_EQ(from_device(*copy), std::vector<float>(kMany, n * n * n));
  job_.groups.queue().drain();
}

}  // namespace
}  // namespace dtrain::comm
