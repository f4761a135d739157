// The CPU's side of the fused kernels beside plain formulas in double. kernels_device_test compares a GPU's
// with it.
#include "kernels/fused/fused_kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/batch_norm.hpp"
#include "kernels/rounded.hpp"

namespace dtrain::kernels {
namespace {

const FusedKernels& cpu() { return fused_kernels_of_cpu(); }

std::vector<float> drawn(std::size_t n, std::uint32_t seed, float scale = 1.0F) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(n);
  for (float& value : values) value = normal(bits);
  return values;
}

template <class T>
void expect_losses_and_gradients(Element type, double tolerance) {
  for (const TokenRows rows : {TokenRows{5, 50, 64}, {3, 7, 7}, {1, 1, 8}, {0, 4, 4}}) {
    auto logits = rounded<T>(drawn(rows.rows * rows.stride, 3, 4.0F));
    const auto before = logits;
    std::vector<std::int64_t> targets;
    for (std::size_t r = 0; r < rows.rows; ++r)
      targets.push_back(static_cast<std::int64_t>(r * 5 % rows.words));
    std::vector<float> losses(rows.rows);
    std::vector<float> log_sums(rows.rows);
    cpu().token_loss(losses.data(), log_sums.data(), logits.data(), type, targets.data(), rows, nullptr);
    const float factor = 0.25F;
    cpu().token_loss_gradient(logits.data(), type, log_sums.data(), targets.data(), &factor, rows, nullptr);
    for (std::size_t r = 0; r < rows.rows; ++r) {
      const auto at = [&](std::size_t i) {
        return static_cast<double>(to_float(before[r * rows.stride + i]));
      };
      double sum = 0;
      for (std::size_t i = 0; i < rows.words; ++i) sum += std::exp(at(i));
      const auto target = static_cast<std::size_t>(targets[r]);
      EXPECT_NEAR(losses[r], std::log(sum) - at(target), 2e-6 * (1 + std::abs(std::log(sum))));
      for (std::size_t i = 0; i < rows.stride; ++i) {
        const double wanted =
            i >= rows.words ? 0.0 : 0.25 * (std::exp(at(i)) / sum - (i == target ? 1.0 : 0.0));
        EXPECT_NEAR(to_float(logits[r * rows.stride + i]), wanted, tolerance) << r << " " << i;
      }
    }
  }
}

TEST(FusedKernelsTest, LossAndGradientOfTokensFollowTheFormulas) {
  expect_losses_and_gradients<float>(Element::float32, 1e-6);
  expect_losses_and_gradients<Bfloat16>(Element::bfloat16, 0x1p-10);  // half of the last bit of 0.25
  expect_losses_and_gradients<Float16>(Element::float16, 0x1p-13);
}

TEST(FusedKernelsTest, LossAndGradientAtOnceAreThoseOfTwoCalls) {
  const TokenRows rows{5, 50, 64};
  auto apart = drawn(rows.rows * rows.stride, 3, 4.0F);
  auto at_once = apart;
  const std::vector<std::int64_t> targets = {0, 5, 49, 7, 3};
  std::vector<float> losses(rows.rows);
  std::vector<float> found(rows.rows);
  std::vector<float> log_sums(rows.rows);
  const float one = 1.0F;
  cpu().token_loss(losses.data(), log_sums.data(), apart.data(), Element::float32, targets.data(), rows,
                   nullptr);
  cpu().token_loss_gradient(apart.data(), Element::float32, log_sums.data(), targets.data(), &one, rows,
                            nullptr);
  cpu().token_loss_with_gradient(found.data(), at_once.data(), Element::float32, targets.data(), rows,
                                 nullptr);
  EXPECT_EQ(found, losses);
  EXPECT_EQ(at_once, apart);
}

TEST(FusedKernelsTest, ColumnsAreSummedOverTheirRows) {
  const std::vector<float> values = {1, 2, 3, 10, 20, 30};
  std::vector<float> sums(3);
  cpu().column_sums(sums.data(), nullptr, values.data(), Element::float32, 2, 3, nullptr);
  EXPECT_EQ(sums, (std::vector<float>{11, 22, 33}));
  cpu().column_sums(sums.data(), nullptr, values.data(), Element::float32, 0, 3, nullptr);
  EXPECT_EQ(sums, (std::vector<float>{0, 0, 0}));
}

TEST(FusedKernelsTest, LogitsOfAnySizeNeitherOverflowNorVanish) {
  const std::vector<float> logits = {1e4F, -1e4F, 9999.0F, -std::numeric_limits<float>::infinity()};
  float loss = 0;
  float log_sum = 0;
  const std::int64_t target = 2;
  cpu().token_loss(&loss, &log_sum, logits.data(), Element::float32, &target, {1, 4, 4}, nullptr);
  EXPECT_NEAR(loss, 1.0 + std::log1p(std::exp(-1.0)), 1e-3);  // an ulp of 1e4
}

TEST(FusedKernelsTest, SumsOfExponentialsAreTheSameJoinedInAnyParts) {
  const auto values = drawn(1000, 8, 10.0F);
  LogSum whole;
  for (const float value : values) whole.add(value);
  for (const std::size_t parts : {1U, 2U, 7U, 256U}) {
    std::vector<LogSum> sums(parts);
    for (std::size_t i = 0; i < values.size(); ++i) sums[i % parts].add(values[i]);
    LogSum joined;
    for (const LogSum& sum : sums) joined.join(sum);
    joined.join(LogSum());
    EXPECT_NEAR(joined.value(), whole.value(), 1e-5);
  }
}

TEST(FusedKernelsTest, ResidualAndNormFollowTheFormulas) {
  const NormRows rows{300, 48, 1e-5F};  // more rows than partial sums
  const std::size_t n = rows.rows * rows.width;
  const auto input = drawn(n, 1);
  const auto branch = rounded<Bfloat16>(drawn(n, 2));
  const auto weight = drawn(rows.width, 3);
  const auto bias = drawn(rows.width, 4);
  std::vector<float> sum(n);
  std::vector<float> normed(n);
  std::vector<float> means(rows.rows);
  std::vector<float> deviations(rows.rows);
  cpu().residual_norm(sum.data(), normed.data(), Element::float32, means.data(), deviations.data(),
                      input.data(), branch.data(), Element::bfloat16, weight.data(), bias.data(), rows,
                      nullptr);
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], input[i] + to_float(branch[i]));

  const auto of_normed = drawn(n, 5);
  const auto passed = drawn(n, 6);
  std::vector<float> gradient(n);
  std::vector<float> partial(FusedKernels::kPartialRows * 2 * rows.width);
  std::vector<float> of_branch(n);
  std::vector<float> weight_sums(rows.width);
  std::vector<float> bias_sums(rows.width);
  cpu().residual_norm_gradient({.of_sum = gradient.data(),
                                .of_branch = of_branch.data(),
                                .of_weight = weight_sums.data(),
                                .of_bias = bias_sums.data(),
                                .partial = partial.data()},
                               passed.data(), of_normed.data(), Element::float32, sum.data(), weight.data(),
                               means.data(), deviations.data(), rows, nullptr);
  std::vector<double> of_weight(rows.width);
  std::vector<double> of_bias(rows.width);
  const auto width = static_cast<double>(rows.width);
  for (std::size_t r = 0; r < rows.rows; ++r) {
    const std::size_t at = r * rows.width;
    double mean = 0;
    for (std::size_t i = 0; i < rows.width; ++i) mean += sum[at + i] / width;
    double variance = 0;
    for (std::size_t i = 0; i < rows.width; ++i)
      variance += (sum[at + i] - mean) * (sum[at + i] - mean) / width;
    const double deviation = 1 / std::sqrt(variance + 1e-5);
    double scaled = 0;
    double product = 0;
    for (std::size_t i = 0; i < rows.width; ++i) {
      const double unit = (sum[at + i] - mean) * deviation;
      EXPECT_NEAR(normed[at + i], unit * weight[i] + bias[i], 1e-5);
      scaled += of_normed[at + i] * weight[i] / width;
      product += of_normed[at + i] * weight[i] * unit / width;
      of_weight[i] += of_normed[at + i] * unit;
      of_bias[i] += of_normed[at + i];
    }
    for (std::size_t i = 0; i < rows.width; ++i) {
      const double unit = (sum[at + i] - mean) * deviation;
      const double wanted =
          passed[at + i] + deviation * (of_normed[at + i] * weight[i] - scaled - unit * product);
      EXPECT_NEAR(gradient[at + i], wanted, 1e-5);
      EXPECT_EQ(of_branch[at + i], gradient[at + i]);
    }
  }
  for (std::size_t i = 0; i < rows.width; ++i) {
    EXPECT_NEAR(weight_sums[i], of_weight[i], 1e-4);
    EXPECT_NEAR(bias_sums[i], of_bias[i], 1e-4);
  }
}

TEST(FusedKernelsTest, WithoutABranchTheInputItselfIsNormed) {
  const NormRows rows{4, 9, 1e-5F};
  const auto input = drawn(36, 1);
  const std::vector<float> zero(36);
  const std::vector<float> ones(9, 1.0F);
  const std::vector<float> no_bias(9);
  std::vector<float> sum(36);
  std::vector<float> with(36);
  std::vector<float> without(36);
  std::vector<float> means(4);
  std::vector<float> deviations(4);
  const auto norm = [&](float* to, std::vector<float>& normed, const float* branch) {
    cpu().residual_norm(to, normed.data(), Element::float32, means.data(), deviations.data(), input.data(),
                        branch, Element::float32, ones.data(), no_bias.data(), rows, nullptr);
  };
  norm(sum.data(), with, zero.data());
  norm(nullptr, without, nullptr);
  EXPECT_EQ(with, without);
}

struct BatchNormTensors {
  explicit BatchNormTensors(const ChannelNorm& of) : norm(of) {
    norm.weight = weight.data();
    norm.bias = bias.data();
    norm.mean = mean.data();
    norm.inverse_deviation = inverse_deviation.data();
    norm.scale = scale.data();
    norm.shift = shift.data();
    norm.partial = partial.data();
  }
  ChannelNorm norm;
  std::vector<float> weight = drawn(norm.channels, 3);
  std::vector<float> bias = drawn(norm.channels, 4);
  std::vector<double> mean = std::vector<double>(norm.channels);
  std::vector<double> inverse_deviation = mean;
  std::vector<float> scale = std::vector<float>(norm.channels);
  std::vector<float> shift = scale;
  std::vector<double> partial = std::vector<double>(FusedKernels::kStatisticParts * 2 * norm.channels);
};

/// Beside the CPU's own kernels (kernels/batch_norm.hpp), which have tests of their own.
TEST(FusedKernelsTest, BatchNormIsThatOfTheCpusOwnKernels) {
  for (const ChannelRows size : {ChannelRows{50, 9}, {7, 40}, {1, 3}}) {
    for (const bool relu : {false, true}) {
      for (const bool has_residual : {false, true}) {
        const std::size_t n = size.rows * size.channels;
        BatchNormTensors of({.rows = size.rows, .channels = size.channels, .relu = relu});
        auto x = drawn(n, 1, 2.0F);
        for (float& value : x) value += 100.0F;  // a mean far above the deviation
        const auto residual = drawn(n, 2);
        std::vector<float> y(n);
        std::vector<double> step_mean(size.channels, 1.0);
        std::vector<double> step_variance(size.channels, 1.0);
        const StepMoments step =
            size.rows > 1 ? StepMoments{step_mean.data(), step_variance.data(), 4} : StepMoments{};
        cpu().batch_norm(y.data(), x.data(), has_residual ? residual.data() : nullptr, of.norm, step,
                         nullptr);

        std::vector<double> mean(size.channels);
        std::vector<double> variance(size.channels);
        channel_moments(mean.data(), variance.data(), x.data(), size, {0, size.channels});
        const auto rows = static_cast<double>(size.rows);
        for (std::size_t c = 0; c < size.channels; ++c) {
          EXPECT_NEAR(of.mean[c], mean[c], 1e-5);
          EXPECT_NEAR(of.inverse_deviation[c] * std::sqrt(variance[c] + 1e-5), 1, 1e-5);
          if (size.rows == 1) continue;
          EXPECT_NEAR(step_mean[c], 1 + 4 * mean[c], 1e-4);
          EXPECT_NEAR(step_variance[c], 1 + 4 * variance[c] * rows / (rows - 1), 1e-4);
        }
        std::vector<float> wanted(n);
        const Then then = relu ? Then::relu : Then::nothing;
        scale_channels<float>({.y = wanted.data(),
                               .x = x.data(),
                               .residual = has_residual ? residual.data() : nullptr,
                               .scale = of.scale.data(),
                               .shift = of.shift.data(),
                               .then = then},
                              size);
        EXPECT_EQ(y, wanted);

        const auto above = drawn(n, 5);
        std::vector<float> of_x(n);
        std::vector<float> of_residual(n);
        std::vector<float> of_weight(size.channels);
        std::vector<float> of_bias(size.channels);
        std::vector<float> factors(3 * size.channels);
        const bool by_output = has_residual && relu;
        cpu().batch_norm_gradient({.of_x = of_x.data(),
                                   .of_residual = has_residual ? of_residual.data() : nullptr,
                                   .of_weight = of_weight.data(),
                                   .of_bias = of_bias.data(),
                                   .factors = factors.data(),
                                   .of_output = above.data(),
                                   .x = x.data(),
                                   .output = by_output ? y.data() : nullptr},
                                  of.norm, nullptr);
        const MaskedGradient<float> masked{.gradient = above.data(),
                                           .x = x.data(),
                                           .output = by_output ? y.data() : nullptr,
                                           .scale = of.scale.data(),
                                           .shift = of.shift.data(),
                                           .then = then};
        std::vector<double> sum(size.channels);
        std::vector<double> product(size.channels);
        std::vector<float> centre(mean.begin(), mean.end());
        channel_gradient_sums(sum.data(), product.data(), masked, centre.data(), size, {0, size.channels});
        std::vector<float> a(size.channels);
        std::vector<float> b(size.channels);
        std::vector<float> constant(size.channels);
        for (std::size_t c = 0; c < size.channels; ++c) {
          EXPECT_NEAR(of_bias[c], sum[c], 1e-4);
          EXPECT_NEAR(of_weight[c], product[c] * of.inverse_deviation[c],
                      1e-3 * (1 + std::abs(product[c] * of.inverse_deviation[c])));
          const auto [a_c, b_c, c_c] =
              channel_factors_of(sum[c], product[c], rows, of.weight[c], of.mean[c], of.inverse_deviation[c]);
          a[c] = a_c;
          b[c] = b_c;
          constant[c] = c_c;
        }
        std::vector<float> wanted_x(n);
        std::vector<float> wanted_residual(n);
        channel_gradient(wanted_x.data(), wanted_residual.data(), masked, a.data(), b.data(), constant.data(),
                         size);
        for (std::size_t i = 0; i < n; ++i)
          EXPECT_NEAR(of_x[i], wanted_x[i],
                      1e-3 * (1 + std::abs(wanted_x[i])) *
                          (size.rows == 1 ? of.inverse_deviation[i % size.channels] : 1));
        if (!has_residual) wanted_residual.assign(n, 0.0F);
        EXPECT_EQ(of_residual, wanted_residual);
      }
    }
  }
}

TEST(FusedKernelsTest, AStepIsDecidedAndAppliedWithoutTheHost) {
  const std::size_t n = 100;
  const double weight = 32;
  for (const bool decoupled : {false, true}) {
    const AdamRule rule{.beta1 = 0.9F, .beta2 = 0.99F, .decoupled = decoupled};
    const std::vector<UpdateChunk> chunks = {{.begin = 0, .place = 0, .size = 30, .weight_decay = 0.1F},
                                             {.begin = 30, .place = 30, .size = 70, .weight_decay = 0.1F}};
    const UpdateInputs inputs{.weight = weight, .learning_rate = 0.01};
    auto values = drawn(n, 1);
    std::vector<double> wanted(values.begin(), values.end());
    std::vector<float> first(n);
    std::vector<float> second(n);
    std::vector<double> m(n);
    std::vector<double> v(n);
    std::vector<Bfloat16> copy(n);
    UpdateDecision decision;
    for (int step = 1; step <= 5; ++step) {
      const auto gradient = drawn(n, 10U + static_cast<std::uint32_t>(step), 20.0F);
      const SumOfSquares squares = sum_of_squares_and_nonfinite(gradient.data(), n);
      cpu().decide(&decision, &squares, 1.0, &inputs, nullptr);
      cpu().adam({.values = values.data(),
                  .first = first.data(),
                  .second = second.data(),
                  .gradient = gradient.data(),
                  .copy = copy.data(),
                  .chunks = chunks.data(),
                  .chunk_count = chunks.size()},
                 rule, &decision, nullptr);
      const double norm = std::sqrt(squares.sum) / weight;
      EXPECT_GT(norm, 1.0);
      EXPECT_EQ(decision.count, step);
      for (std::size_t i = 0; i < n; ++i) {
        double g = gradient[i] / weight / (norm + 1e-6);
        if (decoupled) {
          wanted[i] -= 0.01 * 0.1 * wanted[i];
        } else {
          g += 0.1 * wanted[i];
        }
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.99 * v[i] + 0.01 * g * g;
        wanted[i] -= 0.01 / (1 - std::pow(0.9, step)) * m[i] /
                     (std::sqrt(v[i]) / std::sqrt(1 - std::pow(0.99, step)) + 1e-8);
        EXPECT_NEAR(values[i], wanted[i], 2e-6);
        EXPECT_EQ(copy[i].bits, from_float<Bfloat16>(values[i]).bits);
      }
    }
  }
}

// Runs of parameters with decay and without it, their state packed: by one call what a call for each gives.
TEST(FusedKernelsTest, RunsOfDifferentDecayAreUpdatedByOneCall) {
  const std::size_t n = 64;
  const UpdateDecision decision{
      .scale = 0.5F, .applies = 1, .count = 3, .learning_rate = 0.01, .rate = 0.01F};
  const auto gradient = drawn(n, 5);
  const std::vector<UpdateChunk> chunks = {{.begin = 40, .place = 10, .size = 7},
                                           {.begin = 0, .place = 0, .size = 10, .weight_decay = 0.1F},
                                           {.begin = 16, .place = 17, .size = 9, .weight_decay = 0.3F}};
  struct Memory {
    std::vector<float> values, first, second;
    std::vector<Bfloat16> copy;
  };
  const Memory begun{drawn(n, 1), drawn(n, 2), std::vector<float>(n, 0.25F), std::vector<Bfloat16>(n)};
  const auto update = [&](Memory& memory, std::span<const UpdateChunk> given) {
    cpu().adam({.values = memory.values.data(),
                .first = memory.first.data(),
                .second = memory.second.data(),
                .gradient = gradient.data(),
                .copy = memory.copy.data(),
                .chunks = given.data(),
                .chunk_count = given.size()},
               {.decoupled = true}, &decision, nullptr);
  };
  Memory at_once = begun;
  Memory one_by_one = begun;
  update(at_once, chunks);
  for (const UpdateChunk& chunk : chunks) update(one_by_one, {&chunk, 1});
  EXPECT_EQ(at_once.values, one_by_one.values);
  EXPECT_EQ(at_once.first, one_by_one.first);
  EXPECT_EQ(at_once.second, one_by_one.second);
  for (std::size_t i = 0; i < n; ++i) {
    const bool updated = i < 10 || (i >= 16 && i < 25) || (i >= 40 && i < 47);
    EXPECT_EQ(at_once.values[i] != begun.values[i], updated) << i;
    EXPECT_EQ(at_once.copy[i].bits, updated ? from_float<Bfloat16>(at_once.values[i]).bits : 0) << i;
    EXPECT_EQ(at_once.first[i] != begun.first[i], i < 26) << i << ": the state lies one behind the other";
  }
}

TEST(FusedKernelsTest, AStepWhoseGradientIsNotFiniteChangesNothing) {
  std::vector<float> values = {1.0F, 2.0F};
  std::vector<float> first = {0.5F, 0.5F};
  std::vector<float> second = {0.25F, 0.25F};
  std::vector<Float16> copy(2);
  const std::vector<float> gradient = {std::numeric_limits<float>::quiet_NaN(), 1.0F};
  const SumOfSquares squares = sum_of_squares_and_nonfinite(gradient.data(), 2);
  UpdateDecision decision{.count = 7};
  const UpdateInputs inputs{.weight = 1.0, .learning_rate = 1.0};
  cpu().decide(&decision, &squares, 0.0, &inputs, nullptr);
  EXPECT_EQ(decision.applies, 0);
  EXPECT_EQ(decision.skips, 1.0F);
  EXPECT_EQ(decision.count, 7);
  const UpdateChunk all{.size = 2};
  cpu().adam({.values = values.data(),
              .first = first.data(),
              .second = second.data(),
              .gradient = gradient.data(),
              .copy = copy.data(),
              .copy_type = Element::float16,
              .chunks = &all,
              .chunk_count = 1},
             {}, &decision, nullptr);
  EXPECT_EQ(values, (std::vector<float>{1.0F, 2.0F}));
  EXPECT_EQ(first, (std::vector<float>{0.5F, 0.5F}));
  EXPECT_EQ(copy[1].bits, 0);
}

}  // namespace
}  // namespace dtrain::kernels
