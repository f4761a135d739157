#include "models/layers/convolution/winograd_conv.hpp"

#include "kernels/products.hpp"
#include "models/compute/gradient_place.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Case {
  std::int64_t images, channels, out, height, width;
};
// Tiles of four and of two outputs; odd sides, one pixel, more than a block of tiles, an image larger than a
// block, blocks of several images; products of the library for many channels and for rows of no whole
// vectors.
const std::vector<Case> kCases = {{2, 32, 40, 7, 9},   {3, 48, 32, 1, 1},    {9, 32, 32, 16, 16},
                                  {1, 32, 32, 35, 70}, {70, 64, 32, 4, 6},   {5, 32, 48, 2, 6},
                                  {70, 48, 64, 6, 6},  {3, 144, 160, 9, 12}, {300, 32, 136, 1, 2}};

std::unique_ptr<Model> model_for(const Case& c, at::ScalarType type, Conv2d::Bias bias) {
  const Conv2d::Geometry geometry{
      .in_channels = c.channels, .out_channels = c.out, .kernel = 3, .stride = 1, .padding = 1};
  return model_of(std::make_unique<Conv2d>("conv", geometry, Conv2d::Style{.bias = bias, .format = kLast}),
                  type);
}

/// By vectors of so many bytes, as other processors have them.
class WinogradVectorsTest : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    kernels::limit_product_vectors(GetParam());
    if (kernels::product_vector_bytes() != GetParam()) GTEST_SKIP() << "this processor has no such vectors";
  }
  void TearDown() override { kernels::limit_product_vectors(64); }
};
INSTANTIATE_TEST_SUITE_P(Widths, WinogradVectorsTest, testing::Values(16, 32, 64));

TEST_P(WinogradVectorsTest, OutputsAndGradientsAreTorchs) {
  at::manual_seed(1);
  for (const auto type : {at::kDouble, at::kFloat}) {
    const double tolerance = type == at::kDouble ? 1e-12 : 2e-5;
    for (const auto bias : {Conv2d::Bias::yes, Conv2d::Bias::no}) {
      for (const Case& c : kCases) {
        const auto model = model_for(c, type, bias);
        auto& p = model->layers()[0]->parameters();
        const at::Tensor ours = at::randn({c.images, c.channels, c.height, c.width}, type).requires_grad_();
        const Conv2d::Geometry geometry{
            .in_channels = c.channels, .out_channels = c.out, .kernel = 3, .stride = 1, .padding = 1};
        ASSERT_TRUE(fits_winograd(ours, p[0].value, geometry));
        const at::Tensor theirs = ours.detach().clone().requires_grad_();
        const at::Tensor weight = p[0].value.detach().clone().requires_grad_();
        at::Tensor shift;
        if (bias == Conv2d::Bias::yes) shift = p[1].value.detach().clone().requires_grad_();
        const at::Tensor expected = at::conv2d(
            theirs, weight, shift.defined() ? std::optional<at::Tensor>(shift) : std::nullopt, 1, 1);
        const at::Tensor out = model->layers()[0]->forward({ours}, {})[0];
        EXPECT_TRUE(at::allclose(out, expected, tolerance, tolerance));
        const at::Tensor gradient = at::randn_like(out);
        out.backward(gradient);
        expected.backward(gradient);
        const auto expect_close = [&](const at::Tensor& a, const at::Tensor& b) {
          EXPECT_LE((a - b).abs().max().item<double>(), tolerance * (1.0 + b.abs().max().item<double>()));
        };
        expect_close(ours.grad(), theirs.grad());
        expect_close(p[0].value.grad(), weight.grad());
        if (shift.defined()) expect_close(p[1].value.grad(), shift.grad());
      }
    }
  }
}

/// Input and output gradient that floats lose much of: numbers far from zero, and of all sizes beside one
/// another.
std::vector<std::pair<at::Tensor, at::Tensor>> hard_inputs(const Case& c) {
  const Shape in = {c.images, c.channels, c.height, c.width};
  const auto normal = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  const at::Tensor dy = normal({c.images, c.out, c.height, c.width});
  const auto sizes = [&](at::IntArrayRef shape) { return at::pow(10.0, normal(shape)) * normal(shape); };
  return {{normal(in), dy},
          {at::relu(normal(in)), dy},
          {normal(in) + 30.0, dy + 30.0},
          {sizes(in), sizes(dy.sizes())},
          {at::where(at::rand(in, at::kDouble) < 0.01, normal(in) * 1e4, normal(in)), dy}};
}

TEST(WinogradConvTest, FloatsAreWithinAHundredThousandthOfDoublesOnHardInputs) {
  at::manual_seed(3);
  const Case c{16, 64, 96, 12, 16};
  for (const auto& [input, gradient] : hard_inputs(c)) {
    const auto model = model_for(c, at::kFloat, Conv2d::Bias::no);
    auto& p = model->layers()[0]->parameters();
    const at::Tensor x = input.to(at::kFloat).requires_grad_();
    const at::Tensor out = model->layers()[0]->forward({x}, {})[0];
    const at::Tensor dy = gradient.to(at::kFloat);
    out.backward(dy);
    const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor exact_weight = p[0].value.detach().to(at::kDouble).requires_grad_();
    const at::Tensor exact = at::conv2d(exact_x, exact_weight, {}, 1, 1);
    exact.backward(dy.to(at::kDouble));
    const auto expect_near = [](const at::Tensor& a, const at::Tensor& b) {
      EXPECT_LE((a - b).abs().max().item<double>(), 1e-5 * b.abs().max().item<double>());
    };
    expect_near(out, exact);
    expect_near(x.grad(), exact_x.grad());
    expect_near(p[0].value.grad(), exact_weight.grad());
  }
}

TEST(WinogradConvTest, AWeightMaySeeImagesOfTwoSizesInAStep) {
  at::manual_seed(4);
  const auto model = model_for({2, 32, 32, 2, 2}, at::kDouble, Conv2d::Bias::no);
  auto& weight = model->layers()[0]->parameters()[0];
  GradientPlace place(weight);
  place.begin_step(2);
  for (const std::int64_t extent : {2, 8, 2}) {
    const at::Tensor input = at::randn({2, 32, extent, extent}, at::kDouble);
    const at::Tensor expected = at::conv2d(input, weight.value.detach(), {}, 1, 1);
    EXPECT_TRUE(at::allclose(model->layers()[0]->forward({input}, {})[0], expected, 1e-12, 1e-12));
  }
}

TEST(WinogradConvTest, TheWeightsGradientGoesIntoItsPlace) {
  const Case c{2, 32, 32, 4, 4};
  const auto model = model_for(c, at::kFloat, Conv2d::Bias::no);
  auto& weight = model->layers()[0]->parameters()[0];
  const at::Tensor slot = at::empty_like(weight.value.detach());
  GradientPlace place(weight);
  place.offer(slot.alias());
  model->layers()[0]->forward({at::randn({2, 32, 4, 4})}, {})[0].sum().backward();
  EXPECT_EQ(weight.value.grad().data_ptr(), slot.data_ptr());
  EXPECT_FALSE(place.take().defined());
}

TEST(WinogradConvTest, OtherConvolutionsAreLeftToTorch) {
  const at::Tensor input = at::randn({1, 32, 8, 8});
  const at::Tensor weight = at::randn({32, 32, 3, 3}).contiguous(kLast);
  const Conv2d::Geometry fits{.in_channels = 32, .out_channels = 32, .kernel = 3, .stride = 1, .padding = 1};
  auto strided = fits;
  strided.stride = 2;
  auto unpadded = fits;
  unpadded.padding = 0;
  EXPECT_TRUE(fits_winograd(input, weight, fits));
  EXPECT_FALSE(fits_winograd(input, weight, strided));
  EXPECT_FALSE(fits_winograd(input, weight, unpadded));
  EXPECT_FALSE(fits_winograd(input, at::randn({36, 32, 3, 3}).contiguous(kLast), fits));
  EXPECT_FALSE(fits_winograd(input, at::randn({16, 32, 3, 3}).contiguous(kLast), fits));
  EXPECT_FALSE(fits_winograd(input, at::randn({32, 32, 3, 3}), fits));
}

}  // namespace
}  // namespace dtrain::models
