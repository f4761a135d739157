#include "parallel/step/step_statistics.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/fused/rules.hpp"
#include "parallel/agreement.hpp"
#include "parallel/job_of_test.hpp"

namespace dtrain::parallel {
namespace {

constexpr int kPieces = 5;
constexpr std::int64_t kSamples = 13;

std::unique_ptr<models::Model> small_resnet() {
  auto model =
      models::find_model("resnet18")
          .make({.task = "image_classification", .sample_shape = {3, 8, 8}, .classes = 3}, {{"width", "4"}});
  model->to(at::kDouble, at::kCPU);
  model->initialise(7);
  return model;
}

at::Tensor images() {
  return at::sin(at::arange(kSamples * 3 * 8 * 8, at::kDouble) * 0.37).reshape({kSamples, 3, 8, 8});
}

void forward(models::Model& model, std::int64_t piece) {
  const auto part = part_of(kSamples, piece, kPieces);
  models::Tensors flowing = {images().narrow(0, part.begin, part.size())};
  for (auto& layer : model.layers()) flowing = layer->forward(flowing, {});
}

/// The first normalisation's running mean after one step, by the definition.
at::Tensor expected_mean(models::Model& model) {
  const auto& weight = model.parameters()[0]->value;
  at::Tensor sum = at::zeros({4}, at::kDouble);
  for (int k = 0; k < kPieces; ++k) {
    const auto part = part_of(kSamples, k, kPieces);
    const auto outputs = at::conv2d(images().narrow(0, part.begin, part.size()), weight, {}, 1, 1);
    sum += outputs.mean({0, 2, 3}) * static_cast<double>(part.size());
  }
  return sum / static_cast<double>(kSamples) * 0.1;
}

TEST(StepStatisticsTest, RunningStatisticsAreTheWeightedMeanOverAllPiecesOfAllRanksAndTheSameBits) {
  JobOfTest job;
  const at::NoGradGuard no_grad;
  const auto model = small_resnet();
  StepStatistics statistics(*model, job.data());
  const auto mine = part_of(kPieces, job.rank(), job.data().size());
  for (int step = 0; step < 2; ++step) {
    statistics.begin_step();
    for (auto k = mine.begin; k < mine.end; ++k) forward(*model, k);
    statistics.exchange();
    statistics.apply();
    if (step == 0) {
      EXPECT_TRUE(at::allclose(model->buffers()[0]->value, expected_mean(*model), 1e-12, 1e-14));
    }
  }
  EXPECT_EQ(model->buffers()[2]->value.item<std::int64_t>(), 2);
  at::Tensor all = at::zeros({0}, at::kDouble);
  for (const auto* buffer : model->buffers()) {
    all = at::cat({all, buffer->value.flatten().to(at::kDouble)});
  }
  EXPECT_NO_THROW(require_agreement(job.data(), hash_of(all), "the buffers differ", {}));
}

TEST(StepStatisticsTest, AStepThatIsNotAppliedLeavesNoTrace) {
  JobOfTest job;
  const at::NoGradGuard no_grad;
  const auto model = small_resnet();
  StepStatistics statistics(*model, job.data());
  for (const double applied : {0.0, 1.0}) {
    statistics.begin_step();
    if (job.rank() == 0) {  // the others have no piece: they take part with weight 0
      for (int k = 0; k < kPieces; ++k) forward(*model, k);
    }
    statistics.exchange();
    if (applied == 0.0) continue;
    statistics.apply();
  }
  EXPECT_TRUE(at::allclose(model->buffers()[0]->value, expected_mean(*model), 1e-12, 1e-14));
  EXPECT_EQ(model->buffers()[2]->value.item<std::int64_t>(), 1);
}

TEST(StepStatisticsTest, AStepIsAppliedIfItsDecisionSaysSo) {
  JobOfTest job;
  const at::NoGradGuard no_grad;
  const auto model = small_resnet();
  StepStatistics statistics(*model, job.data());
  for (const int applies : {0, 1}) {
    statistics.begin_step();
    if (job.rank() == 0) {
      for (int k = 0; k < kPieces; ++k) forward(*model, k);
      if (applies == 0) model->buffers()[0]->step_sum.fill_(std::numeric_limits<double>::quiet_NaN());
    }
    statistics.exchange();
    const kernels::UpdateDecision decided{.applies = applies};
    at::Tensor decision = at::empty({sizeof decided}, at::kByte);
    std::memcpy(decision.data_ptr(), &decided, sizeof decided);
    statistics.apply_as_decided(decision);
    EXPECT_EQ(model->buffers()[2]->value.item<std::int64_t>(), applies);
  }
  EXPECT_TRUE(at::allclose(model->buffers()[0]->value, expected_mean(*model), 1e-12, 1e-14));
}

/// Without memory, as a device that has failed is.
struct NoMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    TORCH_CHECK(bytes == 0, "no memory");
    return {};
  }
  void copy_data(void*, const void*, std::size_t) const override {}
};

TEST(StepStatisticsTest, TheyEndWhereTheirSumsCannotBeCopied) {
  JobOfTest job;
  const auto model = small_resnet();
  NoMemory none;
  c10::Allocator* const usual = c10::GetCPUAllocator();
  {
    const StepStatistics statistics(*model, job.data());
    EXPECT_TRUE(model->buffers()[0]->step_sum.defined());
    c10::SetCPUAllocator(&none);
  }
  c10::SetCPUAllocator(usual);
  EXPECT_FALSE(model->buffers()[0]->step_sum.defined()) << "their memory is gone";
}

TEST(StepStatisticsTest, EveryRankGetsTheFirstRanksBuffers) {
  JobOfTest job;
  const auto model = small_resnet();
  for (auto* buffer : model->buffers()) buffer->value.fill_(job.rank() + 3);
  broadcast_buffers(job.data(), *model);
  for (const auto* buffer : model->buffers())
    EXPECT_TRUE(at::all(buffer->value == 3).item<bool>()) << buffer->name;
}

}  // namespace
}  // namespace dtrain::parallel
