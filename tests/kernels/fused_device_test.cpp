// The fused kernels of a GPU beside those of the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/fused/fused_kernels.hpp"
#include "kernels/on_device.hpp"

namespace dtrain::kernels {
namespace {

using FusedDeviceTest = DeviceKernelsTest;

TEST_F(FusedDeviceTest, LossOfTokensAndItsGradient) {
  // Aligned, and not; more rows than blocks.
  for (const TokenRows rows : {TokenRows{37, 50257, 50304}, {5, 65, 65}, {4200, 3, 8}}) {
    const auto logits = rounded<Bfloat16>(numbers(rows.rows * rows.stride, 1));
    std::vector<std::int64_t> targets;
    for (std::size_t r = 0; r < rows.rows; ++r) {
      targets.push_back(static_cast<std::int64_t>(r * 977 % rows.words));
    }
    std::vector<float> losses(rows.rows);
    std::vector<float> log_sums(rows.rows);
    cpu_.token_loss(losses.data(), log_sums.data(), logits.data(), Element::bfloat16, targets.data(), rows,
                    nullptr);
    const OnDevice<Bfloat16> logits_there(logits);
    const OnDevice<std::int64_t> targets_there(targets);
    const OnDevice<float> losses_there(rows.rows);
    const OnDevice<float> sums_there(rows.rows);
    gpu().token_loss(losses_there.data(), sums_there.data(), logits_there.data(), Element::bfloat16,
                     targets_there.data(), rows, nullptr);
    expect_near(losses_there.values(), losses, 1e-5F);

    const float factor = 256.0F;
    auto wanted = logits;
    cpu_.token_loss_gradient(wanted.data(), Element::bfloat16, log_sums.data(), targets.data(), &factor, rows,
                             nullptr);
    const OnDevice<float> factor_there(std::vector<float>{factor});
    gpu().token_loss_gradient(logits_there.data(), Element::bfloat16, sums_there.data(), targets_there.data(),
                              factor_there.data(), rows, nullptr);
    expect_near(logits_there.values(), wanted, 1e-6F);
  }
}

/// cublasLt's products, where it is there, beside plain sums.
class GeluTest : public FusedDeviceTest, public testing::WithParamInterface<InnerProduct> {};

TEST_P(GeluTest, ProductsWithGelu) {
  const InnerProduct of = GetParam();
  const auto x = rounded<Bfloat16>(numbers(of.rows * of.width, 1));
  auto scaled = numbers(of.inner * of.width, 2);
  for (float& value : scaled) value *= 0.05F;
  const auto weight = rounded<Bfloat16>(scaled);
  const auto bias = rounded<Bfloat16>(numbers(of.inner, 3));
  const auto of_output = rounded<Bfloat16>(numbers(of.rows * of.width, 4));
  const OnDevice<Bfloat16> x_there(x);
  const OnDevice<Bfloat16> weight_there(weight);  // also the outer one, as [width, inner]
  const OnDevice<Bfloat16> bias_there(bias);
  const OnDevice<Bfloat16> of_output_there(of_output);
  const OnDevice<Bfloat16> before_there(of.rows * of.inner);
  const OnDevice<Bfloat16> out_there(of.rows * of.inner);
  const OnDevice<Bfloat16> gradient_there(of.rows * of.inner);
  const OnDevice<Bfloat16> of_bias_there(of.inner);
  const OnDevice<unsigned char> workspace(ProductKernels::kWorkspaceBytes);
  const ProductKernels& products = *kernels_->products();
  if (!products.gelu(out_there.data(), before_there.data(), x_there.data(), weight_there.data(),
                     bias_there.data(), Element::bfloat16, of, workspace.data(), nullptr))
    GTEST_SKIP() << "cublasLt is not there, or has no such product";
  ASSERT_TRUE(products.gelu_gradient(gradient_there.data(), of_bias_there.data(), of_output_there.data(),
                                     weight_there.data(), before_there.data(), Element::bfloat16, of,
                                     workspace.data(), nullptr));
  const auto before = before_there.values();
  const auto out = out_there.values();
  const auto gradient = gradient_there.values();
  const auto of_bias = of_bias_there.values();
  for (std::size_t i = 0; i < of.inner; ++i) {
    double bias_sum = 0;
    for (std::size_t r = 0; r < of.rows; ++r) {
      double sum = to_float(bias[i]);
      double back = 0;
      for (std::size_t c = 0; c < of.width; ++c) {
        sum += static_cast<double>(to_float(x[r * of.width + c])) * to_float(weight[i * of.width + c]);
        back +=
            static_cast<double>(to_float(of_output[r * of.width + c])) * to_float(weight[c * of.inner + i]);
      }
      const std::size_t at = r * of.inner + i;
      ASSERT_NEAR(to_float(before[at]), sum, 0x1p-7 * std::abs(sum) + 1e-3);
      const double z = to_float(before[at]);
      const double inside = 0.7978845608028654 * (z + 0.044715 * z * z * z);
      const double slope = 0.7978845608028654 * (1 + 3 * 0.044715 * z * z);
      const double tanh = std::tanh(inside);
      ASSERT_NEAR(to_float(out[at]), 0.5 * z * (1 + tanh), 0x1p-6 * std::abs(z) + 2e-3);
      const double wanted = back * (0.5 * (1 + tanh) + 0.5 * z * (1 - tanh * tanh) * slope);
      ASSERT_NEAR(to_float(gradient[at]), wanted, 0x1p-6 * std::abs(wanted) + 2e-2);
      bias_sum += wanted;
    }
    ASSERT_NEAR(to_float(of_bias[i]), bias_sum, 0x1p-6 * std::abs(bias_sum) + 0.5);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GeluTest,
                         testing::Values(InnerProduct{64, 128, 256}, InnerProduct{67, 16, 264},
                                         InnerProduct{1, 8, 8}, InnerProduct{700, 8, 40}));

TEST_F(FusedDeviceTest, AStepIsDecidedAndApplied) {
  constexpr std::size_t kCount = 100003;
  auto values = numbers(kCount, 1);
  std::vector<float> first(kCount);
  std::vector<float> second(kCount);
  std::vector<Bfloat16> copy(kCount);
  UpdateDecision decision;
  const OnDevice<float> values_there(values);
  const OnDevice<float> first_there(first);
  const OnDevice<float> second_there(second);
  const OnDevice<Bfloat16> copy_there(copy);
  const OnDevice<UpdateDecision> decision_there(std::vector{decision});
  const AdamRule rule{.decoupled = true};
  const UpdateInputs inputs{.weight = 64.0, .learning_rate = 0.01};
  std::vector<UpdateChunk> chunks;  // every third one without decay
  for (std::int64_t begin = 0; begin < static_cast<std::int64_t>(kCount);
       begin += FusedKernels::kUpdateChunk) {
    const auto size =
        std::min<std::int64_t>(FusedKernels::kUpdateChunk, static_cast<std::int64_t>(kCount) - begin);
    chunks.push_back({.begin = begin,
                      .place = begin,
                      .size = static_cast<std::int32_t>(size),
                      .weight_decay = chunks.size() % 3 == 0 ? 0.0F : 0.1F});
  }
  const OnDevice<UpdateChunk> chunks_there(chunks);
  const OnDevice<UpdateInputs> inputs_there(std::vector{inputs});
  for (std::size_t step = 1; step <= 4; ++step) {
    auto gradient = numbers(kCount, 10 + step);
    if (step == 3) gradient[77] = std::numeric_limits<float>::infinity();
    const SumOfSquares squares = sum_of_squares_and_nonfinite(gradient.data(), kCount);
    cpu_.decide(&decision, &squares, 1.0, &inputs, nullptr);
    cpu_.adam({.values = values.data(),
               .first = first.data(),
               .second = second.data(),
               .gradient = gradient.data(),
               .copy = copy.data(),
               .chunks = chunks.data(),
               .chunk_count = chunks.size()},
              rule, &decision, nullptr);
    const OnDevice<float> gradient_there(gradient);
    const OnDevice<SumOfSquares> squares_there(std::vector{squares});
    gpu().decide(decision_there.data(), squares_there.data(), 1.0, inputs_there.data(), nullptr);
    gpu().adam({.values = values_there.data(),
                .first = first_there.data(),
                .second = second_there.data(),
                .gradient = gradient_there.data(),
                .copy = copy_there.data(),
                .chunks = chunks_there.data(),
                .chunk_count = chunks.size()},
               rule, decision_there.data(), nullptr);
    EXPECT_EQ(decision_there.values()[0].applies, step == 3 ? 0 : 1);
    EXPECT_EQ(decision_there.values()[0].count, decision.count);
    expect_near(values_there.values(), values, 1e-6F);
    const auto found = copy_there.values();
    const auto now = values_there.values();
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(found[i].bits, from_float<Bfloat16>(now[i]).bits) << i;
  }
}

}  // namespace
}  // namespace dtrain::kernels
