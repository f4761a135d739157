#include "models/layers/convolution/patch_conv.hpp"

#include "models/compute/precision.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Case {
  std::int64_t images, channels, out, height, width, kernel, stride, padding;
};
// The autoencoder's, a stem's, odd sides with a remainder, one channel, padding as wide as the kernel's half,
// more images than a block holds.
const std::vector<Case> kCases = {{5, 3, 12, 32, 32, 4, 2, 1}, {3, 3, 64, 9, 11, 3, 1, 1},
                                  {2, 3, 8, 15, 17, 7, 2, 3},  {2, 1, 5, 6, 6, 3, 2, 0},
                                  {1, 7, 2, 4, 4, 4, 1, 3},    {70, 12, 24, 16, 16, 4, 2, 1}};

/// Runs the layer and `torch`, which computes the same from (input, weight, bias), and compares everything.
template <class Torch>
void expect_torchs(Model& model, const Shape& shape, at::ScalarType type, const Torch& torch) {
  const double tolerance = type == at::kDouble ? 1e-12 : 2e-5;
  auto& p = model.layers()[0]->parameters();
  const at::Tensor ours = at::randn(shape, type).requires_grad_();
  ASSERT_TRUE(fits_patch_conv(ours, p[0].value));
  const at::Tensor theirs = ours.detach().clone().requires_grad_();
  const at::Tensor weight = p[0].value.detach().clone().requires_grad_();
  const at::Tensor bias = p[1].value.detach().clone().requires_grad_();
  const at::Tensor expected = torch(theirs, weight, bias);
  const at::Tensor out = model.layers()[0]->forward({ours}, {})[0];
  ASSERT_EQ(out.sizes(), expected.sizes());
  const at::Tensor gradient = at::randn_like(out);
  out.backward(gradient);
  expected.backward(gradient);
  const auto expect_close = [&](const at::Tensor& a, const at::Tensor& b) {
    EXPECT_LE((a - b).abs().max().item<double>(), tolerance * (1.0 + b.abs().max().item<double>()));
  };
  expect_close(out, expected);
  expect_close(ours.grad(), theirs.grad());
  expect_close(p[0].value.grad(), weight.grad());
  expect_close(p[1].value.grad(), bias.grad());
}

TEST(PatchConvTest, ConvolutionsAndTheirGradientsAreTorchs) {
  at::manual_seed(2);
  for (const auto type : {at::kDouble, at::kFloat}) {
    for (const Case& c : kCases) {
      const Conv2d::Geometry geometry{.in_channels = c.channels,
                                      .out_channels = c.out,
                                      .kernel = c.kernel,
                                      .stride = c.stride,
                                      .padding = c.padding};
      const auto model =
          model_of(std::make_unique<Conv2d>("conv", geometry, Conv2d::Style{.format = kLast}), type);
      expect_torchs(*model, {c.images, c.channels, c.height, c.width}, type,
                    [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
                      return at::conv2d(x, weight, bias, c.stride, c.padding);
                    });
    }
  }
}

TEST(PatchConvTest, TransposedConvolutionsAndTheirGradientsAreTorchs) {
  at::manual_seed(2);
  for (const auto type : {at::kDouble, at::kFloat}) {
    for (const Case& c : kCases) {
      if (c.kernel <= 2 * c.padding) continue;  // an image of one pixel would shrink to nothing
      const Conv2d::Geometry geometry{.in_channels = c.channels,
                                      .out_channels = c.out,
                                      .kernel = c.kernel,
                                      .stride = c.stride,
                                      .padding = c.padding};
      const auto model =
          model_of(std::make_unique<ConvTranspose2d>("up", geometry, Conv2d::Style{.format = kLast}), type);
      expect_torchs(*model, {c.images, c.channels, c.height / 2, c.width / 2}, type,
                    [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
                      return at::conv_transpose2d(x, weight, bias, c.stride, c.padding);
                    });
    }
  }
}

double apart(const at::Tensor& found, const at::Tensor& wanted) {
  const at::Tensor wide = wanted.to(at::kDouble);
  return ((found.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

// Beside LibTorch's convolution of the same rounded numbers in double: what is rounded once more is a result,
// or a window's part of the input's gradient.
TEST(HalfPatchConvTest, ALargeWeightInHalfPrecisionIsTorchsToRounding) {
  if (!multiplies_in_tiles(at::kBFloat16)) GTEST_SKIP() << "this processor has no AMX for bfloat16";
  constexpr double kRounding = 0x1p-8;
  at::manual_seed(5);
  for (const bool biased : {false, true}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t images : {0, 1, stride == 1 && biased ? 54 : 7}) {  // 54: two blocks
        const Conv2d::Geometry geometry{
            .in_channels = 256, .out_channels = 256, .kernel = 3, .stride = stride, .padding = 1};
        Parameter weight{
            .name = "weight",
            .value = (at::randn({256, 256, 3, 3}) * 0.02 + 0.01).contiguous(kChannelsLast).requires_grad_()};
        Parameter bias{.name = "bias", .value = at::randn({256}).requires_grad_()};
        const at::Tensor x =
            (at::randn({images, 256, 5, 7}) + 3).to(at::kBFloat16).contiguous(kChannelsLast).requires_grad_();
        const at::Tensor wide = x.detach().to(at::kDouble).requires_grad_();
        const auto rounded = [](const at::Tensor& value) {
          return value.detach().to(at::kBFloat16).to(at::kDouble).requires_grad_();
        };
        const at::Tensor wide_weight = rounded(weight.value);
        const at::Tensor wide_bias = rounded(bias.value);
        const ProductScope products(at::kBFloat16);
        ASSERT_TRUE(fits_half_patch_conv(x, weight.value));
        const at::Tensor y = half_patch_conv(x, weight, biased ? &bias : nullptr, geometry);
        const at::Tensor wanted =
            at::conv2d(wide, wide_weight, biased ? std::optional(wide_bias) : std::nullopt, stride, 1);
        ASSERT_EQ(y.sizes(), wanted.sizes());
        EXPECT_EQ(y.scalar_type(), at::kBFloat16);
        const at::Tensor gradient = at::randn(y.sizes()).to(at::kBFloat16);
        y.backward(gradient);
        EXPECT_EQ(weight.value.grad().scalar_type(), at::kFloat);
        if (images == 0) {
          EXPECT_EQ(weight.value.grad().abs().max().item<float>(), 0.0F);
          continue;
        }
        wanted.backward(gradient.to(at::kDouble));
        EXPECT_LT(apart(y.detach(), wanted.detach()), kRounding);
        EXPECT_LT(apart(x.grad(), wide.grad()), kRounding);
        EXPECT_LT(apart(weight.value.grad(), wide_weight.grad()), kRounding);
        if (biased) {
          EXPECT_LT(apart(bias.value.grad(), wide_bias.grad()), 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::models
