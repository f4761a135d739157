#include "models/layers/convolution/conv2d.hpp"

#include <ATen/Parallel.h>

#include "models/support.hpp"

namespace dtrain::models {
namespace {

/// The gradients of a convolution's weight and input.
std::pair<at::Tensor, at::Tensor> gradients_of(Layer& layer, const at::Tensor& values,
                                               std::optional<at::ScalarType> half) {
  // As the layer before leaves them: another kernel takes float32.
  const at::Tensor input =
      values.detach().to(half.value_or(at::kFloat)).clone(at::MemoryFormat::ChannelsLast).requires_grad_();
  layer.parameters()[0].value.mutable_grad() = at::Tensor();
  const Context context{.step = 1, .half = half};
  layer.run({input}, context).at(0).to(at::kFloat).square().sum().backward();
  return {layer.parameters()[0].value.grad(), input.grad().to(at::kFloat)};
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, int repetition) {
  EXPECT_LE((found - expected).norm().item<double>(), 0.02 * expected.norm().item<double>())
      << "repetition " << repetition;
}

// The backward of oneDNN writes outside its memory here: of these repetitions a few dozen end it.
TEST(Conv2dTest, AKernelOfOnePixelWithAStrideIsRightInBfloat16OnSeveralThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (const std::int64_t images : {1, 3}) {
    Conv2d layer("shortcut", {.in_channels = 8, .out_channels = 16, .kernel = 1, .stride = 2},
                 {.bias = Conv2d::Bias::no, .format = at::MemoryFormat::ChannelsLast});
    at::manual_seed(1);
    {
      const at::NoGradGuard no_grad;
      layer.parameters()[0].value.normal_();
    }
    for (int i = 0; i < 200; ++i) {
      const at::Tensor values = at::randn({images, 8, 16, 16});
      const auto expected = gradients_of(layer, values, std::nullopt);
      const auto found = gradients_of(layer, values, at::kBFloat16);
      expect_near(found.first, expected.first, i);
      expect_near(found.second, expected.second, i);
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace dtrain::models
