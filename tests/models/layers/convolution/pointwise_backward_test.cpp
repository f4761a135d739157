#include <ATen/Parallel.h>
#include <ATen/ops/convolution_backward.h>

#include <array>
#include <cstdlib>
#include <random>
#include <tuple>
#include <vector>

#include "models/support.hpp"

namespace dtrain::models {
namespace {

struct Case {
  std::int64_t images, channels, groups, height, width;  // channels: of the larger side, in a group
  std::vector<std::int64_t> stride, beyond;              // pixels beyond the last that the kernel sees
  bool transposed;
  at::MemoryFormat format;
  int threads;
};

/// Half the strides are 2 both ways, for which oneDNN has a way of its own.
Case drawn(std::mt19937& generator) {
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(generator);
  };
  const bool twice = draw(0, 1) == 1;
  const std::vector<std::int64_t> stride = {twice ? 2 : draw(1, 3), twice ? 2 : draw(1, 3)};
  const std::vector<std::int64_t> beyond = {draw(0, static_cast<int>(stride[0]) - 1),
                                            draw(0, static_cast<int>(stride[1]) - 1)};
  return {.images = draw(1, 4),
          .channels = draw(1, 17),
          .groups = draw(1, 2),
          .height = draw(1, 9),
          .width = draw(1, 9),
          .stride = stride,
          .beyond = beyond,
          .transposed = draw(0, 1) == 1,
          .format = draw(0, 3) == 0 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast,
          .threads = static_cast<int>(draw(1, 2))};
}

std::string said(const Case& c) {
  return testing::PrintToString(
             std::vector<std::int64_t>{c.images, c.channels, c.groups, c.height, c.width}) +
         " by " + testing::PrintToString(c.stride) + " and " + testing::PrintToString(c.beyond) +
         (c.transposed ? ", transposed, " : ", ") + std::to_string(c.threads) + " threads";
}

std::array<at::Tensor, 3> gradients(const Case& c, const at::Tensor& of_output, const at::Tensor& input,
                                    const at::Tensor& weight) {
  const std::vector<std::int64_t> bias = {of_output.size(1)};
  const auto padding = c.transposed ? c.beyond : std::vector<std::int64_t>{0, 0};
  const auto [of_input, of_weight, of_bias] =
      at::convolution_backward(of_output, input, weight, at::OptionalIntArrayRef(bias), c.stride, {0, 0},
                               {1, 1}, c.transposed, padding, c.groups, {true, true, true});
  return {of_input, of_weight, of_bias};
}

// oneDNN's own writes outside its memory for some of these, where it takes AVX2.
TEST(PointwiseBackwardTest, IsThatOfDoublePrecisionForStridesAndFewChannels) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  at::manual_seed(1);
  std::mt19937 generator(1);
  for (int i = 0; i < 500; ++i) {
    const Case c = drawn(generator);
    SCOPED_TRACE(said(c));
    at::set_num_threads(c.threads);
    const auto options = at::TensorOptions().dtype(at::kDouble);
    const at::Tensor large =
        at::randn({c.images, c.channels * c.groups, (c.height - 1) * c.stride[0] + 1 + c.beyond[0],
                   (c.width - 1) * c.stride[1] + 1 + c.beyond[1]},
                  options);
    const at::Tensor small = at::randn({c.images, 8 * c.groups, c.height, c.width}, options);
    const at::Tensor weight = at::randn({8 * c.groups, c.channels, 1, 1}, options);
    const at::Tensor& of_output = c.transposed ? large : small;
    const at::Tensor& input = c.transposed ? small : large;
    const auto in_float = [&](const at::Tensor& values) {
      return values.to(at::kFloat).contiguous(c.format);
    };
    const auto expected = gradients(c, of_output, input, weight);
    const auto found = gradients(c, in_float(of_output), in_float(input), in_float(weight));
    for (std::size_t of = 0; of < 3; ++of)
      EXPECT_LT((found[of] - expected[of]).norm().item<double>(), 1e-5 * expected[of].norm().item<double>())
          << "gradient " << of;
  }
}

}  // namespace
}  // namespace dtrain::models
