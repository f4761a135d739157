#include "models/layers/convolution/chwn_conv.hpp"

#include <ATen/Parallel.h>

#include "models/compute/gradient_place.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/flatten.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

struct Case {
  std::int64_t images, channels, out, height, width, kernel, stride, padding;
};
// The cnn's and the autoencoder's, odd sides with a remainder, one channel, padding as wide as the kernel's
// half, images that are no multiple of a vector, one image.
const std::vector<Case> kCases = {{64, 3, 6, 32, 32, 5, 1, 0},   {33, 6, 16, 14, 14, 5, 1, 0},
                                  {19, 12, 24, 16, 16, 4, 2, 1}, {8, 1, 5, 7, 9, 3, 2, 0},
                                  {9, 7, 2, 4, 4, 4, 1, 3},      {1, 3, 8, 15, 17, 7, 1, 3}};

Conv2d::Geometry geometry_of(const Case& c) {
  return {.in_channels = c.channels,
          .out_channels = c.out,
          .kernel = c.kernel,
          .stride = c.stride,
          .padding = c.padding};
}

void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  const double tolerance = expected.scalar_type() == at::kDouble ? 1e-12 : 2e-5;
  EXPECT_LE((found - expected).abs().max().item<double>(),
            tolerance * (1.0 + expected.abs().max().item<double>()));
}

/// Runs the layer and `torch`, which computes the same from (input, weight, bias), and compares everything.
template <class Torch>
void expect_torchs(Model& model, const at::Tensor& ours, const Torch& torch) {
  auto& p = model.layers()[0]->parameters();
  for (auto& parameter : p) parameter.value.mutable_grad() = at::Tensor();
  const at::Tensor theirs = ours.detach().clone().requires_grad_();
  const at::Tensor weight = p[0].value.detach().clone().requires_grad_();
  const at::Tensor bias = p[1].value.detach().clone().requires_grad_();
  const at::Tensor expected = torch(theirs, weight, bias);
  const at::Tensor out = model.layers()[0]->forward({ours}, {})[0];
  EXPECT_TRUE(is_chwn(out));
  const at::Tensor gradient = at::randn(out.sizes(), out.options());
  out.backward(gradient);
  expected.backward(gradient);
  expect_close(out, expected);
  expect_close(ours.grad(), theirs.grad());
  expect_close(p[0].value.grad(), weight.grad());
  expect_close(p[1].value.grad(), bias.grad());
}

/// The same images in each layout that a layer before might give.
std::vector<at::Tensor> in_each_layout(const Shape& shape, at::ScalarType type) {
  const at::Tensor images = at::randn(shape, type);
  return {images.clone().requires_grad_(), images.clone(kChannelsLast).requires_grad_(),
          as_chwn(images).detach().requires_grad_()};
}

TEST(ChwnConvLayerTest, ConvolutionsAndTheirGradientsAreTorchs) {
  at::manual_seed(2);
  const int threads = at::get_num_threads();
  for (const auto type : {at::kDouble, at::kFloat}) {
    for (const Case& c : kCases) {
      for (const auto format : {at::MemoryFormat::Contiguous, kChannelsLast}) {
        at::set_num_threads(format == kChannelsLast ? 2 : 1);
        const auto model = model_of(
            std::make_unique<Conv2d>("conv", geometry_of(c),
                                     Conv2d::Style{.format = format, .images = Conv2d::Images::made_chwn}),
            type);
        for (const at::Tensor& images : in_each_layout({c.images, c.channels, c.height, c.width}, type)) {
          expect_torchs(*model, images,
                        [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
                          return at::conv2d(x, weight, bias, c.stride, c.padding);
                        });
        }
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(ChwnConvLayerTest, TransposedConvolutionsAndTheirGradientsAreTorchs) {
  at::manual_seed(2);
  for (const auto type : {at::kDouble, at::kFloat}) {
    for (const Case& c : kCases) {
      if (c.kernel <= 2 * c.padding) continue;  // an image of one pixel would shrink to nothing
      const auto model = model_of(std::make_unique<ConvTranspose2d>(
                                      "up", geometry_of(c), Conv2d::Style{.images = Conv2d::Images::chwn}),
                                  type);
      for (const at::Tensor& images :
           in_each_layout({c.images, c.channels, c.height / 2, c.width / 2}, type)) {
        expect_torchs(*model, images,
                      [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
                        return at::conv_transpose2d(x, weight, bias, c.stride, c.padding);
                      });
      }
    }
  }
}

TEST(ChwnConvLayerTest, AStageAndItsGradientsAreTorchs) {
  at::manual_seed(4);
  for (const std::int64_t images : {1, 5, 32}) {
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(
        std::make_unique<Conv2d>("conv", Conv2d::Geometry{.in_channels = 3, .out_channels = 4, .kernel = 4},
                                 Conv2d::Style{.images = Conv2d::Images::made_chwn}));
    layers.push_back(std::make_unique<MaxPool2d>("pool", 2));
    layers.push_back(std::make_unique<Activation>("relu", Function::relu, Overwrite::input));
    layers.push_back(std::make_unique<Flatten>("flatten"));
    auto& p = layers[0]->parameters();
    {
      const at::NoGradGuard no_grad;
      for (auto& parameter : p) parameter.value.normal_();
    }
    const at::Tensor ours = at::randn({images, 3, 12, 14}).requires_grad_();
    const at::Tensor theirs = ours.detach().clone().requires_grad_();
    const at::Tensor weight = p[0].value.detach().clone().requires_grad_();
    const at::Tensor bias = p[1].value.detach().clone().requires_grad_();
    Tensors flow = {ours};
    for (const auto& layer : layers) flow = layer->run(flow, {});
    const at::Tensor expected = at::relu(at::max_pool2d(at::conv2d(theirs, weight, bias), 2)).flatten(1);
    EXPECT_TRUE(flow[0].is_contiguous());
    const at::Tensor gradient = at::randn_like(expected);
    flow[0].backward(gradient);
    expected.backward(gradient);
    expect_close(flow[0], expected);
    expect_close(ours.grad(), theirs.grad());
    expect_close(p[0].value.grad(), weight.grad());
    expect_close(p[1].value.grad(), bias.grad());
  }
}

TEST(ChwnConvLayerTest, TheWeightsGradientGoesIntoItsSlot) {
  Conv2d layer("conv", {.in_channels = 2, .out_channels = 3, .kernel = 3},
               Conv2d::Style{.images = Conv2d::Images::chwn});
  GradientPlace place(layer.parameters()[0]);
  const at::Tensor slot = at::full({3, 2, 3, 3}, 7.0);
  place.offer(slot);
  layer.forward({at::ones({4, 2, 5, 5})}, {})[0].sum().backward();
  EXPECT_TRUE(at::all(slot == 36.0).item<bool>());
}

TEST(ChwnConvLayerTest, NoImagesGiveNoneAndAGradientOfZero) {
  Conv2d layer("conv", {.in_channels = 2, .out_channels = 3, .kernel = 3},
               Conv2d::Style{.images = Conv2d::Images::chwn});
  const at::Tensor out = layer.forward({at::ones({0, 2, 5, 5})}, {})[0];
  EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{0, 3, 3, 3}));
  out.sum().backward();
  EXPECT_TRUE(at::all(layer.parameters()[0].value.grad() == 0.0).item<bool>());
}

TEST(ChwnConvLayerTest, FewImagesWithAStrideAndHalfPrecisionGoTheUsualWay) {
  const Conv2d::Geometry strided{.in_channels = 2, .out_channels = 3, .kernel = 4, .stride = 2};
  Conv2d layer("conv", strided, Conv2d::Style{.images = Conv2d::Images::chwn});
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : layer.parameters()) parameter.value.normal_();
  }
  const at::Tensor images = at::randn({7, 2, 8, 8});
  EXPECT_FALSE(fits_chwn_conv(images, layer.parameters()[0].value, strided));
  EXPECT_TRUE(fits_chwn_conv(at::randn({8, 2, 8, 8}), layer.parameters()[0].value, strided));
  const auto& p = layer.parameters();
  expect_close(layer.forward({images}, {})[0], at::conv2d(images, p[0].value, p[1].value, 2));
  const at::Tensor many = at::randn({16, 2, 8, 8});
  const at::Tensor half = layer.run({many}, {.half = at::kBFloat16})[0];
  EXPECT_EQ(half.scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace dtrain::models
