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

TEST_F(FusedDeviceTest, LossOfTokensWithItsGradientInOnePass) {
  // Aligned, and not; more rows than blocks; rows from the middle of a vector on.
  for (const std::size_t offset : {0U, 3U}) {
    for (const TokenRows rows : {TokenRows{300, 50257, 50304}, {5, 65, 65}, {4200, 3, 8}, {3, 1, 8}}) {
      auto wanted = rounded<Bfloat16>(numbers(rows.rows * rows.stride, 1));
      std::vector<std::int64_t> targets;
      for (std::size_t r = 0; r < rows.rows; ++r)
        targets.push_back(static_cast<std::int64_t>(r * 977 % rows.words));
      const OnDevice<Bfloat16> logits_there(wanted, offset);
      std::vector<float> losses(rows.rows);
      cpu_.token_loss_with_gradient(losses.data(), wanted.data(), Element::bfloat16, targets.data(), rows,
                                    nullptr);
      const OnDevice<std::int64_t> targets_there(targets);
      const OnDevice<float> losses_there(rows.rows);
      gpu().token_loss_with_gradient(losses_there.data(), logits_there.data(), Element::bfloat16,
                                     targets_there.data(), rows, nullptr);
      expect_near(losses_there.values(), losses, 1e-5F);
      expect_near(logits_there.values(), wanted, 1e-6F);
    }
  }
}

TEST_F(FusedDeviceTest, LogitsThatAreNoNumberOrNoneAtAll) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr TokenRows kRows{3, 16, 16};
  std::vector<float> logits(kRows.rows * kRows.stride, kNone);
  logits[12] = 1.5F;                                             // the only word that can be
  logits[16 + 3] = logits[16 + 12] = 2.0F;                       // two of them
  logits[2 * 16 + 5] = std::numeric_limits<float>::quiet_NaN();  // beside nothing
  const std::vector<std::int64_t> targets = {12, 3, 12};
  const OnDevice<float> logits_there(logits);
  const OnDevice<std::int64_t> targets_there(targets);
  const OnDevice<float> losses_there(kRows.rows);
  gpu().token_loss_with_gradient(losses_there.data(), logits_there.data(), Element::float32,
                                 targets_there.data(), kRows, nullptr);
  const auto losses = losses_there.values();
  const auto gradient = logits_there.values();
  EXPECT_NEAR(losses[0], 0.0F, 1e-6F);
  EXPECT_NEAR(losses[1], std::log(2.0F), 1e-6F);
  EXPECT_FALSE(std::isfinite(losses[2]));
  EXPECT_NEAR(gradient[12], 0.0F, 1e-6F);
  EXPECT_NEAR(gradient[16 + 3], -0.5F, 1e-6F);
  EXPECT_NEAR(gradient[16 + 12], 0.5F, 1e-6F);
  EXPECT_EQ(gradient[16 + 4], 0.0F);
  EXPECT_TRUE(std::isnan(gradient[2 * 16 + 5]));
}

template <class T>
void compare_column_sums(const FusedKernels& gpu, const FusedKernels& cpu, Element type, std::size_t rows,
                         std::size_t columns, std::size_t offset) {
  SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", from " << offset << " on");
  const auto values = rounded<T>(numbers(rows * columns, 1));
  std::vector<float> wanted(columns);
  cpu.column_sums(wanted.data(), nullptr, values.data(), type, rows, columns, nullptr);
  const OnDevice<T> there(values, offset);
  const OnDevice<float> sums(std::vector<float>(columns, NAN), offset);
  const OnDevice<float> partial(std::vector<float>(FusedKernels::kPartialRows * columns, NAN), offset);
  gpu.column_sums(sums.data(), partial.data(), there.data(), type, rows, columns, nullptr);
  // Of terms up to 2 the sums in float are within their number times 2^-24 of these.
  const float tolerance = 2e-7F * static_cast<float>(rows);
  const auto found = sums.values();
  for (std::size_t c = 0; c < columns; ++c) ASSERT_NEAR(found[c], wanted[c], tolerance) << c;
}

TEST_F(FusedDeviceTest, SumsOverRows) {
  for (const std::size_t rows : {0U, 1U, 7U, 33U, 1000U, 9001U})
    for (const std::size_t columns : {8U, 40U, 264U, 2304U})
      if (rows * columns < 3000000)
        compare_column_sums<Bfloat16>(gpu(), cpu_, Element::bfloat16, rows, columns, 0);
  for (const std::size_t columns : {1U, 3U, 33U, 257U})
    compare_column_sums<Bfloat16>(gpu(), cpu_, Element::bfloat16, 700, columns, 0);
  compare_column_sums<Bfloat16>(gpu(), cpu_, Element::bfloat16, 70, 64, 3);
  compare_column_sums<Float16>(gpu(), cpu_, Element::float16, 300, 72, 0);
  compare_column_sums<float>(gpu(), cpu_, Element::float32, 300, 72, 1);
  compare_column_sums<float>(gpu(), cpu_, Element::float32, 65, 16, 0);
}

template <class T>
void compare_max_pools(const FusedKernels& gpu, const FusedKernels& cpu, Element type, const PoolSize& size,
                       std::size_t inner, std::size_t offset) {
  SCOPED_TRACE(testing::Message() << size.planes << " x " << size.height << " x " << size.width << " x "
                                  << inner << ", from " << offset << " on");
  const std::size_t pixels = size.planes * size.height * size.width * inner;
  const std::size_t windows = size.planes * (size.height / 2) * (size.width / 2) * inner;
  auto values = numbers(pixels, 1);
  for (std::size_t i = 0; i < pixels; i += 7) values[i] = 1.0F;  // equals
  if (pixels > 40) values[40] = std::numeric_limits<float>::quiet_NaN();
  const auto images = rounded<T>(values);
  const auto gradient = rounded<T>(numbers(windows, 2));
  std::vector<T> out(windows);
  std::vector<std::uint8_t> which(windows);
  std::vector<T> back(pixels);
  cpu.max_pool(out.data(), which.data(), images.data(), type, size, inner, nullptr);
  cpu.max_pool_gradient(back.data(), gradient.data(), which.data(), type, size, inner, nullptr);
  const OnDevice<T> images_there(images, offset);
  const OnDevice<T> gradient_there(gradient, offset);
  const OnDevice<T> out_there(windows, offset);
  const OnDevice<std::uint8_t> which_there(windows, offset);
  const OnDevice<T> back_there(rounded<T>(numbers(pixels, 3)), offset);
  gpu.max_pool(out_there.data(), which_there.data(), images_there.data(), type, size, inner, nullptr);
  gpu.max_pool_gradient(back_there.data(), gradient_there.data(), which_there.data(), type, size, inner,
                        nullptr);
  EXPECT_EQ(bits_of_all(out_there.values()), bits_of_all(out));
  EXPECT_EQ(which_there.values(), which);
  EXPECT_EQ(bits_of_all(back_there.values()), bits_of_all(back));
}

TEST_F(FusedDeviceTest, MaximaOfWindows) {
  compare_max_pools<Bfloat16>(gpu(), cpu_, Element::bfloat16, {3, 8, 6}, 64, 0);
  compare_max_pools<Bfloat16>(gpu(), cpu_, Element::bfloat16, {2, 5, 7}, 16, 0);  // an odd edge
  compare_max_pools<Bfloat16>(gpu(), cpu_, Element::bfloat16, {2, 4, 4}, 5, 0);
  compare_max_pools<Bfloat16>(gpu(), cpu_, Element::bfloat16, {2, 4, 4}, 8, 3);
  compare_max_pools<Float16>(gpu(), cpu_, Element::float16, {1, 2, 70}, 8, 0);  // more than a block in a line
  compare_max_pools<float>(gpu(), cpu_, Element::float32, {2, 6, 4}, 24, 0);
  compare_max_pools<float>(gpu(), cpu_, Element::float32, {2, 1, 5}, 8, 0);          // no window
  compare_max_pools<Bfloat16>(gpu(), cpu_, Element::bfloat16, {70000, 2, 2}, 1, 0);  // more lines than blocks
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
  const OnDevice<float> of_bias_there(of.inner);
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
    ASSERT_NEAR(of_bias[i], bias_sum, 0x1p-6 * std::abs(bias_sum) + 0.5);
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
  std::int64_t begin = 0;
  while (begin < static_cast<std::int64_t>(kCount)) {
    // Some begin in the middle of a vector.
    const std::int64_t most = chunks.size() == 2 ? 1001 : FusedKernels::kUpdateChunk;
    const auto size = std::min<std::int64_t>(most, static_cast<std::int64_t>(kCount) - begin);
    chunks.push_back({.begin = begin,
                      .place = begin,
                      .size = static_cast<std::int32_t>(size),
                      .weight_decay = chunks.size() % 3 == 0 ? 0.0F : 0.1F});
    begin += size;
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
