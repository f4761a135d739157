// The norms of a device beside those of the CPU: sizes that fill no block, no vector or more than all blocks;
// memory that begins in the middle of a vector.
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/on_device.hpp"

namespace dtrain::kernels {
namespace {

using NormsDeviceTest = DeviceKernelsTest;

template <class T>
constexpr Element kElement = std::is_same_v<T, float>      ? Element::float32
                             : std::is_same_v<T, Bfloat16> ? Element::bfloat16
                                                           : Element::float16;

struct NormCase {
  std::size_t rows;
  std::size_t width;
  std::size_t offset = 0;  ///< Of all memory, in elements.
  bool has_branch = true;
  bool has_passed = true;
};

struct NormResult {
  std::vector<float> sum, normed, means, deviations, gradient, of_branch, of_weight, of_bias;
};

template <class T>
std::vector<float> in_float(const std::vector<T>& values) {
  std::vector<float> widened;
  for (const T value : values) widened.push_back(to_float(value));
  return widened;
}

/// Both directions; the gradient has `of` from the CPU, so that each is compared by itself.
template <class T, class Branch>
NormResult norm_on_device(const FusedKernels& gpu, const NormCase& how, const NormResult& of) {
  const NormRows rows{how.rows, how.width, 1e-5F};
  const std::size_t n = rows.rows * rows.width;
  const OnDevice<float> input(numbers(n, 1), how.offset);
  const OnDevice<Branch> branch(rounded<Branch>(numbers(n, 2)), how.offset);
  const OnDevice<float> weight(numbers(rows.width, 3), how.offset);
  const OnDevice<float> bias(numbers(rows.width, 4), how.offset);
  const OnDevice<float> sum(n, how.offset);
  const OnDevice<T> normed(n, how.offset);
  const OnDevice<float> means(rows.rows);
  const OnDevice<float> deviations(rows.rows);
  gpu.residual_norm(sum.data(), normed.data(), kElement<T>, means.data(), deviations.data(), input.data(),
                    how.has_branch ? branch.data() : nullptr, kElement<Branch>, weight.data(), bias.data(),
                    rows, nullptr);
  const OnDevice<T> above(rounded<T>(numbers(n, 5)), how.offset);
  const OnDevice<float> passed(numbers(n, 6), how.offset);
  const OnDevice<float> summed(how.has_branch ? of.sum : numbers(n, 1), how.offset);
  const OnDevice<float> means_read(of.means);
  const OnDevice<float> deviations_read(of.deviations);
  const OnDevice<float> gradient(n, how.offset);
  const std::vector<float> nothing(FusedKernels::kPartialRows * 2 * rows.width, NAN);
  const OnDevice<float> partial(nothing, how.offset);
  const OnDevice<T> of_branch(n, how.offset);
  const OnDevice<float> of_weight(rows.width, how.offset);
  const OnDevice<float> of_bias(rows.width, how.offset);
  gpu.residual_norm_gradient({.of_sum = gradient.data(),
                              .of_branch = how.has_branch ? of_branch.data() : nullptr,
                              .of_weight = of_weight.data(),
                              .of_bias = of_bias.data(),
                              .partial = partial.data()},
                             how.has_passed ? passed.data() : nullptr, above.data(), kElement<T>,
                             summed.data(), weight.data(), means_read.data(), deviations_read.data(), rows,
                             nullptr);
  return {sum.values(),      in_float(normed.values()),    means.values(),     deviations.values(),
          gradient.values(), in_float(of_branch.values()), of_weight.values(), of_bias.values()};
}

template <class T, class Branch>
NormResult norm_on_cpu(const FusedKernels& cpu, const NormCase& how) {
  const NormRows rows{how.rows, how.width, 1e-5F};
  const std::size_t n = rows.rows * rows.width;
  const auto input = numbers(n, 1);
  const auto branch = rounded<Branch>(numbers(n, 2));
  const auto weight = numbers(rows.width, 3);
  const auto bias = numbers(rows.width, 4);
  std::vector<T> normed(n);
  NormResult made{.sum = std::vector<float>(n),
                  .normed = {},
                  .means = std::vector<float>(rows.rows),
                  .deviations = std::vector<float>(rows.rows),
                  .gradient = std::vector<float>(n),
                  .of_branch = {},
                  .of_weight = std::vector<float>(rows.width),
                  .of_bias = std::vector<float>(rows.width)};
  cpu.residual_norm(made.sum.data(), normed.data(), kElement<T>, made.means.data(), made.deviations.data(),
                    input.data(), how.has_branch ? branch.data() : nullptr, kElement<Branch>, weight.data(),
                    bias.data(), rows, nullptr);
  const auto above = rounded<T>(numbers(n, 5));
  const auto passed = numbers(n, 6);
  std::vector<T> of_branch(n);
  std::vector<float> partial(FusedKernels::kPartialRows * 2 * rows.width);
  cpu.residual_norm_gradient({.of_sum = made.gradient.data(),
                              .of_branch = how.has_branch ? of_branch.data() : nullptr,
                              .of_weight = made.of_weight.data(),
                              .of_bias = made.of_bias.data(),
                              .partial = partial.data()},
                             how.has_passed ? passed.data() : nullptr, above.data(), kElement<T>,
                             how.has_branch ? made.sum.data() : input.data(), weight.data(),
                             made.means.data(), made.deviations.data(), rows, nullptr);
  made.normed = in_float(normed);
  made.of_branch = in_float(of_branch);
  return made;
}

template <class T, class Branch>
void compare_norms(const FusedKernels& gpu, const FusedKernels& cpu, const NormCase& how) {
  SCOPED_TRACE(testing::Message() << how.rows << " x " << how.width << ", from " << how.offset << " on");
  const auto wanted = norm_on_cpu<T, Branch>(cpu, how);
  const auto found = norm_on_device<T, Branch>(gpu, how, wanted);
  const float last_bit = std::is_same_v<T, float> ? 0.0F : std::is_same_v<T, Float16> ? 0x1p-10F : 0x1p-7F;
  EXPECT_EQ(found.sum, wanted.sum);
  expect_near(found.normed, wanted.normed, 1e-5F + last_bit);
  expect_near(found.means, wanted.means, 1e-5F);
  expect_near(found.gradient, wanted.gradient, 1e-4F);
  std::vector<T> branch_wanted;  // of the same kernel's gradient, to the bit
  if (how.has_branch)
    branch_wanted = rounded<T>(found.gradient);
  else
    branch_wanted.resize(found.gradient.size());
  EXPECT_EQ(found.of_branch, in_float(branch_wanted));
  expect_near(found.of_weight, wanted.of_weight, 1e-4F);
  expect_near(found.of_bias, wanted.of_bias, 1e-4F);
}

TEST_F(NormsDeviceTest, ResidualAndNormAndTheirGradient) {
  compare_norms<float, Bfloat16>(gpu(), cpu_, {600, 768});
  compare_norms<float, Bfloat16>(gpu(), cpu_, {9, 6144});
  compare_norms<float, Bfloat16>(gpu(), cpu_, {200, 384});  // blocks without a row
  compare_norms<Bfloat16, Bfloat16>(gpu(), cpu_, {67, 768});
  compare_norms<Bfloat16, float>(gpu(), cpu_, {33, 1600, 0, false});
  compare_norms<Float16, Float16>(gpu(), cpu_, {21, 1024, 0, true, false});
  compare_norms<Bfloat16, Bfloat16>(gpu(), cpu_, {5, 2500});
  compare_norms<Bfloat16, Float16>(gpu(), cpu_, {2100, 12});  // more rows than blocks have at once
}

TEST_F(NormsDeviceTest, RowsThatFillNoVector) {
  for (const std::size_t width : {1, 3, 33, 255, 257, 767})
    compare_norms<Bfloat16, Bfloat16>(gpu(), cpu_, {37, width});
  compare_norms<float, float>(gpu(), cpu_, {1, 1});
  compare_norms<float, Bfloat16>(gpu(), cpu_, {3, 6143});
  compare_norms<Bfloat16, Bfloat16>(gpu(), cpu_, {37, 768, 1});
  compare_norms<Bfloat16, Bfloat16>(gpu(), cpu_, {37, 128, 2});
}

TEST_F(NormsDeviceTest, NormsAreTheSameInAnyOrderOfBlocks) {
  const NormCase how{700, 768};
  const auto of = norm_on_cpu<Bfloat16, Bfloat16>(cpu_, how);
  const auto once = norm_on_device<Bfloat16, Bfloat16>(gpu(), how, of);
  change_order_of_blocks();
  const auto again = norm_on_device<Bfloat16, Bfloat16>(gpu(), how, of);
  EXPECT_EQ(once.normed, again.normed);
  EXPECT_EQ(once.gradient, again.gradient);
  EXPECT_EQ(once.of_branch, again.of_branch);
  EXPECT_EQ(once.of_weight, again.of_weight);
  EXPECT_EQ(once.of_bias, again.of_bias);
}

struct ChannelCase {
  std::size_t rows;
  std::size_t channels;
  bool relu = true;
  bool has_residual = true;
  std::size_t offset = 0;  ///< Of the tensors, in elements.
  float shift = 0.0F;      ///< Of all numbers of x.
};

template <class T>
struct ChannelResult {
  std::vector<float> scale, shift;
  std::vector<double> mean, inverse_deviation, step;
  std::vector<T> output, of_x, of_residual;
  std::vector<float> of_weight, of_bias;
};

/// Both directions by kernels whose memory is `Memory`: OnDevice, or a vector. The gradient has its
/// statistics and its output from `of` where there is one, so that both sides see the same zeros of the ReLU.
template <class T, template <class> class Memory>
ChannelResult<T> batch_norm_by(const FusedKernels& kernels, const ChannelCase& how,
                               const ChannelResult<T>* of) {
  const std::size_t n = how.rows * how.channels;
  auto values = numbers(n, 1);
  for (float& value : values) value += how.shift;
  const std::vector<float> nothing(how.channels, NAN);
  const std::vector<double> nowhere(how.channels, NAN);
  const std::vector<T> no_output(n, from_float<T>(NAN));
  Memory<T> x(rounded<T>(values), how.offset);
  Memory<T> residual(rounded<T>(numbers(n, 2)), how.offset);
  Memory<float> weight(numbers(how.channels, 3));
  Memory<float> bias(numbers(how.channels, 4));
  Memory<double> partial(std::vector<double>(FusedKernels::kStatisticParts * 2 * how.channels, NAN));
  Memory<float> scale(nothing), shift(nothing);
  Memory<double> mean(nowhere), inverse_deviation(nowhere);
  Memory<double> step(std::vector<double>(2 * how.channels, 1.0));
  Memory<T> output(no_output, how.offset);
  ChannelNorm norm{.rows = how.rows,
                   .channels = how.channels,
                   .relu = how.relu,
                   .type = kElement<T>,
                   .weight = weight.data(),
                   .bias = bias.data(),
                   .mean = mean.data(),
                   .inverse_deviation = inverse_deviation.data(),
                   .scale = scale.data(),
                   .shift = shift.data(),
                   .partial = partial.data()};
  const StepMoments moments{step.data(), step.data() + how.channels, 8};
  kernels.batch_norm(output.data(), x.data(), how.has_residual ? residual.data() : nullptr, norm,
                     how.rows > 1 ? moments : StepMoments{}, nullptr);
  ChannelResult<T> made{.scale = scale.values(),
                        .shift = shift.values(),
                        .mean = mean.values(),
                        .inverse_deviation = inverse_deviation.values(),
                        .step = step.values(),
                        .output = output.values(),
                        .of_x = {},
                        .of_residual = {},
                        .of_weight = {},
                        .of_bias = {}};
  const ChannelResult<T>& read = of != nullptr ? *of : made;
  Memory<float> scale_read(read.scale), shift_read(read.shift);
  Memory<double> mean_read(read.mean), inverse_read(read.inverse_deviation);
  Memory<T> output_read(read.output, how.offset);
  Memory<T> above(rounded<T>(numbers(n, 5)), how.offset);
  Memory<T> of_x(no_output, how.offset), of_residual(no_output, how.offset);
  Memory<float> of_weight(nothing), of_bias(nothing);
  Memory<float> factors(std::vector<float>(3 * how.channels, NAN));
  norm.scale = scale_read.data();
  norm.shift = shift_read.data();
  norm.mean = mean_read.data();
  norm.inverse_deviation = inverse_read.data();
  kernels.batch_norm_gradient({.of_x = of_x.data(),
                               .of_residual = how.has_residual ? of_residual.data() : nullptr,
                               .of_weight = of_weight.data(),
                               .of_bias = of_bias.data(),
                               .factors = factors.data(),
                               .of_output = above.data(),
                               .x = x.data(),
                               .output = how.has_residual && how.relu ? output_read.data() : nullptr},
                              norm, nullptr);
  made.of_x = of_x.values();
  if (how.has_residual) made.of_residual = of_residual.values();
  made.of_weight = of_weight.values();
  made.of_bias = of_bias.values();
  return made;
}

template <class T>
class OnHost {
 public:
  explicit OnHost(std::vector<T> values, std::size_t /*offset*/ = 0) : values_(std::move(values)) {}
  T* data() { return values_.data(); }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

void expect_near_doubles(const std::vector<double>& found, const std::vector<double>& wanted,
                         double tolerance) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found.at(i), wanted[i], tolerance * (1 + std::abs(wanted[i]))) << i;
}

template <class T>
void compare_batch_norms(const FusedKernels& gpu, const FusedKernels& cpu, const ChannelCase& how) {
  SCOPED_TRACE(testing::Message() << how.rows << " x " << how.channels << ", from " << how.offset << " on");
  const auto wanted = batch_norm_by<T, OnHost>(cpu, how, nullptr);
  const auto found = batch_norm_by<T, OnDevice>(gpu, how, &wanted);
  // A GPU adds up 16 terms at a time in float: each such sum is within 16 x 2^-24 of its terms' sizes.
  constexpr double kFloatSums = 16 * 0x1p-24;
  expect_near_doubles(found.mean, wanted.mean, kFloatSums);
  expect_near_doubles(found.step, wanted.step, 8 * kFloatSums);  // of eight samples
  if (how.rows > 1) expect_near_doubles(found.inverse_deviation, wanted.inverse_deviation, kFloatSums);
  expect_near(found.output, wanted.output, how.rows > 1 ? 1e-5F : 1e-3F);
  expect_near(found.of_weight, wanted.of_weight, 1e-4F);
  expect_near(found.of_bias, wanted.of_bias, 1e-4F);
  expect_near(found.of_x, wanted.of_x, 1e-5F);
  expect_near(found.of_residual, wanted.of_residual, 0.0F);
}

TEST_F(NormsDeviceTest, BatchNormWithResidualAndReluAndItsGradient) {
  compare_batch_norms<Bfloat16>(gpu(), cpu_, {1000, 64});
  compare_batch_norms<Bfloat16>(gpu(), cpu_, {333, 37});
  compare_batch_norms<Bfloat16>(gpu(), cpu_, {77, 512, true, false});
  compare_batch_norms<Float16>(gpu(), cpu_, {500, 72, false, true});  // a tile that is not full
  compare_batch_norms<float>(gpu(), cpu_, {129, 64, false, false});
  compare_batch_norms<Bfloat16>(gpu(), cpu_, {40000, 8});  // more rows than threads have at once
}

TEST_F(NormsDeviceTest, ChannelsThatFillNoVector) {
  for (const std::size_t channels : {1, 3, 33}) {
    compare_batch_norms<Bfloat16>(gpu(), cpu_, {700, channels});
    compare_batch_norms<float>(gpu(), cpu_, {31, channels, true, false});
  }
  compare_batch_norms<Bfloat16>(gpu(), cpu_, {300, 64, true, true, 3});
  compare_batch_norms<float>(gpu(), cpu_, {5, 8, true, true, 1});
}

TEST_F(NormsDeviceTest, AChannelsMeanFarAboveItsDeviation) {
  compare_batch_norms<float>(gpu(), cpu_, {3000, 16, true, true, 0, 100.0F});
}

TEST_F(NormsDeviceTest, BatchNormsAreTheSameInAnyOrderOfBlocks) {
  const ChannelCase how{5000, 64};
  const auto once = batch_norm_by<Bfloat16, OnDevice>(gpu(), how, nullptr);
  change_order_of_blocks();
  const auto again = batch_norm_by<Bfloat16, OnDevice>(gpu(), how, nullptr);
  EXPECT_EQ(once.mean, again.mean);
  EXPECT_EQ(once.inverse_deviation, again.inverse_deviation);
  EXPECT_EQ(bits_of_all(once.output), bits_of_all(again.output));
  EXPECT_EQ(bits_of_all(once.of_x), bits_of_all(again.of_x));
  EXPECT_EQ(once.of_weight, again.of_weight);
  EXPECT_EQ(once.of_bias, again.of_bias);
}

}  // namespace
}  // namespace dtrain::kernels
