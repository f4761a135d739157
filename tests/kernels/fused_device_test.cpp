// The fused kernels of a GPU beside those of the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/fused/fused_kernels.hpp"
#include "kernels/on_device.hpp"

namespace dtrain::kernels {
namespace {

/// Between -2 and 2, without a pattern of a power of two.
std::vector<float> numbers(std::size_t n, std::size_t seed) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = static_cast<float>((i + seed) * 7919 % 20011) / 5003.0F - 2.0F;
  return values;
}

std::vector<Bfloat16> halves(const std::vector<float>& values) {
  std::vector<Bfloat16> to;
  for (const float value : values) to.push_back(from_float<Bfloat16>(value));
  return to;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& wanted, float tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], tolerance * (1.0F + std::abs(wanted[i]))) << i;
  }
}

class FusedDeviceTest : public DeviceKernelsTest {
 protected:
  const FusedKernels& gpu() const { return *kernels_->fused(); }
  const FusedKernels& cpu_ = fused_kernels_of_cpu();
};

TEST_F(FusedDeviceTest, LossOfTokensAndItsGradient) {
  for (const TokenRows rows : {TokenRows{37, 50257, 50304}, {5, 65, 65}}) {  // aligned, and not
    const auto logits = halves(numbers(rows.rows * rows.stride, 1));
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
    const auto found = logits_there.values();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const float near = to_float(wanted[i]);
      ASSERT_NEAR(to_float(found[i]), near, 0x1p-7F * std::abs(near) + 1e-6F)
          << i;  // the last bit may differ
    }
  }
}

TEST_F(FusedDeviceTest, ResidualAndNormAndTheirGradient) {
  // Of the last two, blocks have no row, and the threads' columns of the two gradients differ.
  for (const NormRows rows : {NormRows{600, 768, 1e-5F},
                              {600, 33, 1e-5F},
                              {600, 6144, 1e-5F},
                              {37, 33, 1e-5F},
                              {200, 384, 1e-5F}}) {
    const std::size_t width = rows.width;
    const std::size_t n = rows.rows * width;
    const auto input = numbers(n, 1);
    const auto branch = halves(numbers(n, 2));
    const auto weight = numbers(width, 3);
    const auto bias = numbers(width, 4);
    std::vector<float> sum(n);
    std::vector<float> normed(n);
    std::vector<float> means(rows.rows);
    std::vector<float> deviations(rows.rows);
    cpu_.residual_norm(sum.data(), normed.data(), Element::float32, means.data(), deviations.data(),
                       input.data(), branch.data(), Element::bfloat16, weight.data(), bias.data(), rows,
                       nullptr);
    const OnDevice<float> input_there(input);
    const OnDevice<Bfloat16> branch_there(branch);
    const OnDevice<float> weight_there(weight);
    const OnDevice<float> bias_there(bias);
    const OnDevice<float> sum_there(n);
    const OnDevice<float> normed_there(n);
    const OnDevice<float> means_there(rows.rows);
    const OnDevice<float> deviations_there(rows.rows);
    gpu().residual_norm(sum_there.data(), normed_there.data(), Element::float32, means_there.data(),
                        deviations_there.data(), input_there.data(), branch_there.data(), Element::bfloat16,
                        weight_there.data(), bias_there.data(), rows, nullptr);
    EXPECT_EQ(sum_there.values(), sum);
    expect_near(normed_there.values(), normed, 1e-5F);

    const auto above = numbers(n, 5);
    const auto passed = numbers(n, 6);
    std::vector<float> gradient(n);
    std::vector<float> partial(FusedKernels::kPartialRows * 2 * width);
    cpu_.residual_norm_gradient(gradient.data(), partial.data(), passed.data(), above.data(),
                                Element::float32, sum.data(), weight.data(), means.data(), deviations.data(),
                                rows, nullptr);
    const OnDevice<float> above_there(above);
    const OnDevice<float> passed_there(passed);
    const OnDevice<float> gradient_there(n);
    const OnDevice<float> partial_there(partial.size());
    gpu().residual_norm_gradient(gradient_there.data(), partial_there.data(), passed_there.data(),
                                 above_there.data(), Element::float32, sum_there.data(), weight_there.data(),
                                 means_there.data(), deviations_there.data(), rows, nullptr);
    expect_near(gradient_there.values(), gradient, 1e-4F);
    expect_near(partial_there.values(), partial, 1e-4F);
  }
}

/// On one side; the other has memory of its own.
template <class Memory>
ChannelNorm norm_in(const ChannelNorm& of, Memory& floats, std::vector<double*> doubles) {
  ChannelNorm norm = of;
  norm.weight = floats[0];
  norm.bias = floats[1];
  norm.scale = floats[2];
  norm.shift = floats[3];
  norm.mean = doubles[0];
  norm.inverse_deviation = doubles[1];
  norm.partial = doubles[2];
  return norm;
}

TEST_F(FusedDeviceTest, BatchNormWithResidualAndReluAndItsGradient) {
  for (const auto& [rows, channels] : {std::pair<std::size_t, std::size_t>{1000, 64}, {333, 37}}) {
    const std::size_t n = rows * channels;
    const ChannelNorm of{.rows = rows, .channels = channels, .relu = true, .type = Element::bfloat16};
    const auto x = halves(numbers(n, 1));
    const auto residual = halves(numbers(n, 2));
    const auto above = halves(numbers(n, 5));
    std::vector<std::vector<float>> floats = {numbers(channels, 3), numbers(channels, 4),
                                              std::vector<float>(channels), std::vector<float>(channels)};
    std::vector<std::vector<double>> doubles(2, std::vector<double>(channels));
    doubles.emplace_back(FusedKernels::kStatisticParts * 2 * channels);
    std::vector<float*> here;
    std::vector<double*> doubles_here;
    std::vector<std::unique_ptr<OnDevice<float>>> float_memory;
    std::vector<std::unique_ptr<OnDevice<double>>> double_memory;
    std::vector<float*> there;
    std::vector<double*> doubles_there;
    for (auto& values : floats) {
      here.push_back(values.data());
      there.push_back(float_memory.emplace_back(std::make_unique<OnDevice<float>>(values))->data());
    }
    for (auto& values : doubles) {
      doubles_here.push_back(values.data());
      doubles_there.push_back(double_memory.emplace_back(std::make_unique<OnDevice<double>>(values))->data());
    }
    std::vector<Bfloat16> y(n);
    std::vector<double> sums(2 * channels, 1.0);
    cpu_.batch_norm(y.data(), x.data(), residual.data(), norm_in(of, here, doubles_here),
                    {sums.data(), sums.data() + channels, 8}, nullptr);
    const OnDevice<Bfloat16> x_there(x);
    const OnDevice<Bfloat16> residual_there(residual);
    const OnDevice<Bfloat16> y_there(n);
    const OnDevice<double> sums_there(std::vector<double>(2 * channels, 1.0));
    gpu().batch_norm(y_there.data(), x_there.data(), residual_there.data(), norm_in(of, there, doubles_there),
                     {sums_there.data(), sums_there.data() + channels, 8}, nullptr);
    const auto sums_found = sums_there.values();
    for (std::size_t i = 0; i < sums.size(); ++i)
      ASSERT_NEAR(sums_found[i], sums[i], 1e-9 * (1 + std::abs(sums[i])));
    const auto near_halves = [](const std::vector<Bfloat16>& found, const std::vector<Bfloat16>& wanted) {
      for (std::size_t i = 0; i < found.size(); ++i) {
        const float near = to_float(wanted[i]);
        ASSERT_NEAR(to_float(found[i]), near, 0x1p-7F * std::abs(near) + 1e-5F) << i;
      }
    };
    near_halves(y_there.values(), y);

    std::vector<Bfloat16> of_x(n);
    std::vector<Bfloat16> of_residual(n);
    std::vector<float> of_channels(5 * channels);
    const auto gradient = [&](Bfloat16* x_to, Bfloat16* residual_to, float* channels_to,
                              const Bfloat16* above_from, const Bfloat16* x_from, const Bfloat16* y_from) {
      return ChannelNormGradient{.of_x = x_to,
                                 .of_residual = residual_to,
                                 .of_weight = channels_to,
                                 .of_bias = channels_to + channels,
                                 .factors = channels_to + 2 * channels,
                                 .of_output = above_from,
                                 .x = x_from,
                                 .output = y_from};
    };
    cpu_.batch_norm_gradient(
        gradient(of_x.data(), of_residual.data(), of_channels.data(), above.data(), x.data(), y.data()),
        norm_in(of, here, doubles_here), nullptr);
    const OnDevice<Bfloat16> above_there(above);
    const OnDevice<Bfloat16> y_read(y);  // both see the same zeros
    const OnDevice<Bfloat16> of_x_there(n);
    const OnDevice<Bfloat16> of_residual_there(n);
    const OnDevice<float> of_channels_there(5 * channels);
    gpu().batch_norm_gradient(gradient(of_x_there.data(), of_residual_there.data(), of_channels_there.data(),
                                       above_there.data(), x_there.data(), y_read.data()),
                              norm_in(of, there, doubles_there), nullptr);
    auto found = of_channels_there.values();
    found.resize(2 * channels);
    of_channels.resize(2 * channels);
    expect_near(found, of_channels, 1e-4F);
    near_halves(of_x_there.values(), of_x);
    near_halves(of_residual_there.values(), of_residual);
  }
}

/// cublasLt's products, where it is there, beside plain sums.
TEST_F(FusedDeviceTest, ProductsWithGelu) {
  constexpr InnerProduct kOf{64, 128, 256};
  const auto x = halves(numbers(kOf.rows * kOf.width, 1));
  auto scaled = numbers(kOf.inner * kOf.width, 2);
  for (float& value : scaled) value *= 0.05F;
  const auto weight = halves(scaled);
  const auto bias = halves(numbers(kOf.inner, 3));
  const auto of_output = halves(numbers(kOf.rows * kOf.width, 4));
  const OnDevice<Bfloat16> x_there(x);
  const OnDevice<Bfloat16> weight_there(weight);  // also the outer one, as [width, inner]
  const OnDevice<Bfloat16> bias_there(bias);
  const OnDevice<Bfloat16> of_output_there(of_output);
  const OnDevice<Bfloat16> before_there(kOf.rows * kOf.inner);
  const OnDevice<Bfloat16> out_there(kOf.rows * kOf.inner);
  const OnDevice<Bfloat16> gradient_there(kOf.rows * kOf.inner);
  const OnDevice<Bfloat16> of_bias_there(kOf.inner);
  const OnDevice<unsigned char> workspace(ProductKernels::kWorkspaceBytes);
  const ProductKernels& products = *kernels_->products();
  if (!products.gelu(out_there.data(), before_there.data(), x_there.data(), weight_there.data(),
                     bias_there.data(), Element::bfloat16, kOf, workspace.data(), nullptr))
    GTEST_SKIP() << "cublasLt is not there, or has no such product";
  ASSERT_TRUE(products.gelu_gradient(gradient_there.data(), of_bias_there.data(), of_output_there.data(),
                                     weight_there.data(), before_there.data(), Element::bfloat16, kOf,
                                     workspace.data(), nullptr));
  const auto before = before_there.values();
  const auto out = out_there.values();
  const auto gradient = gradient_there.values();
  const auto of_bias = of_bias_there.values();
  for (std::size_t i = 0; i < kOf.inner; ++i) {
    double bias_sum = 0;
    for (std::size_t r = 0; r < kOf.rows; ++r) {
      double sum = to_float(bias[i]);
      double back = 0;
      for (std::size_t c = 0; c < kOf.width; ++c) {
        sum += static_cast<double>(to_float(x[r * kOf.width + c])) * to_float(weight[i * kOf.width + c]);
        back +=
            static_cast<double>(to_float(of_output[r * kOf.width + c])) * to_float(weight[c * kOf.inner + i]);
      }
      const std::size_t at = r * kOf.inner + i;
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
