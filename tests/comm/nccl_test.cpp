// The collectives over NCCL, one GPU per rank; skipped with the reason elsewhere.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "comm/cuda_module.hpp"
#include "comm/job.hpp"
#include "core/slice.hpp"

namespace dtrain::comm {
namespace {

/// Why the ranks of this job cannot each have a GPU; empty when they can.
std::string why_not(int ranks) {
  std::string reason = CudaModule::why_no_driver();
  if (!reason.empty()) return "no CUDA driver: " + reason;
  const int devices = CudaModule(DTRAIN_CUDA_MODULE).device_count();
  if (devices >= ranks) return {};
  return std::to_string(ranks) + " ranks but " + std::to_string(devices) + " GPUs";
}

class NcclTest : public testing::Test {
 protected:
  NcclTest() : world_(Communicator::duplicate(MPI_COMM_WORLD)), reason_(why_not(world_.size())) {
    if (!reason_.empty()) return;
    cluster_ = discover_cluster(world_, affinity_mask(), {.gpu = world_.rank(), .uuid = {}});
    CommConfig config;
    config.timeout_s = 60;
    config.cuda_module = DTRAIN_CUDA_MODULE;
    groups_.emplace(
        make_groups(world_, cluster_, topology::Mesh(cluster_, {.data = world_.size()}), config, sink_));
  }

  /// Device memory with `values`.
  std::unique_ptr<SharedBuffer> on_device(const std::vector<float>& values) {
    auto buffer = groups_->world().allocate(values.size() * sizeof(float));
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

  Communicator world_;
  std::string reason_;
  NullSpanSink sink_;
  topology::Cluster cluster_;
  std::optional<Groups> groups_;
};

TEST_F(NcclTest, ReducesBroadcastsAndPassesTheBarrier) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  const auto mine = static_cast<float>(world_.rank() + 1);
  const int n = world_.size();
  const auto buffer = on_device(std::vector<float>(10007, mine));
  groups_->world().all_reduce(whole(*buffer), ReduceOp::sum).wait();
  EXPECT_EQ(from_device(*buffer), std::vector<float>(10007, static_cast<float>(n * (n + 1) / 2)));
  const auto other = on_device(std::vector<float>(33, mine));
  groups_->data().broadcast(whole(*other), n - 1).wait();
  EXPECT_EQ(from_device(*other), std::vector<float>(33, static_cast<float>(n)));
  groups_->world().barrier().wait();
}

TEST_F(NcclTest, CutsUnevenPartsAsPartOf) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  const std::size_t count = 10007;
  const Range part = part_of(static_cast<std::int64_t>(count), world_.rank(), world_.size());
  const auto input = on_device(std::vector<float>(count, 1));
  const auto output = on_device(std::vector<float>(static_cast<std::size_t>(part.size()), 0));
  groups_->world().reduce_scatter(whole(*input), whole(*output), ReduceOp::sum).wait();
  groups_->world().all_gather(whole(*output), whole(*input)).wait();
  EXPECT_EQ(from_device(*input), std::vector<float>(count, static_cast<float>(world_.size())));
}

TEST_F(NcclTest, MessagesCrossInBothDirections) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  if (world_.size() < 2) GTEST_SKIP() << "nobody to send to";
  const int n = world_.size();
  const auto out = on_device(std::vector<float>(1 << 20, static_cast<float>(world_.rank())));
  const auto in = on_device(std::vector<float>(1 << 20, -1));
  const Handle sent = groups_->world().send(whole(*out), (world_.rank() + 1) % n);
  groups_->world().receive(whole(*in), (world_.rank() + n - 1) % n).wait();
  sent.wait();
  EXPECT_EQ(from_device(*in)[12345], static_cast<float>((world_.rank() + n - 1) % n));
}

}  // namespace
}  // namespace dtrain::comm
