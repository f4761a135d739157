#include "core/error.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/embedding_bag.hpp"
#include "models/layers/linear.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

TEST(LayersTest, ShapesWithoutComputingAreThoseOfTheForwardPass) {
  for (const auto& registration : registry()) {
    const DatasetFacts facts = facts_for(registration);
    const auto model = registration.make(facts, {});
    model->initialise(1);
    Tensors values = inputs_for(*model, facts, 2);
    std::vector<Shape> shapes = model->input_shapes(2, facts.sample_shape);
    for (auto& layer : model->layers()) {
      const Cost cost = layer->cost(shapes);
      EXPECT_GE(cost.flops, 0.0);
      shapes = layer->output_shapes(shapes);
      values = layer->forward(values, {});
      EXPECT_EQ(values[0].sizes().vec(), shapes[0]) << layer->name();
    }
  }
}

TEST(LayersTest, FlopsCountMultiplicationsAndAdditions) {
  const auto mlp = find_model("mlp").make(images({1, 28, 28}), {});
  const double products = 2.0 * (784 * 250 + 250 * 100 + 100 * 10);
  EXPECT_EQ(mlp->forward_flops({1, 28, 28}), products + 360.0 + 350.0);  // biases, activations
  const Conv2d conv("conv", {.in_channels = 3, .out_channels = 6, .kernel = 5});
  EXPECT_EQ(conv.cost({{2, 3, 32, 32}}).flops, 2.0 * 6 * 28 * 28 * (2 * 75 + 1));
}

TEST(LayersTest, ActivationsLeaveASegmentsInputAlone) {
  Activation layer("relu", Function::relu, Overwrite::input);
  const at::Tensor leaf = at::tensor({-1.0F, 2.0F}).requires_grad_();
  layer.forward({leaf}, {})[0].sum().backward();
  EXPECT_TRUE(at::equal(leaf.detach(), at::tensor({-1.0F, 2.0F})));
  EXPECT_TRUE(at::equal(leaf.grad(), at::tensor({0.0F, 1.0F})));
}

TEST(LayersTest, EveryActivationIsTorchs) {
  const at::Tensor input = at::randn({50});
  const auto apply = [&](const char* name) {
    return Activation(name, function_of(name), Overwrite::never).forward({input}, {})[0];
  };
  EXPECT_TRUE(at::equal(apply("relu"), at::relu(input)));
  EXPECT_TRUE(at::equal(apply("tanh"), at::tanh(input)));
  EXPECT_TRUE(at::equal(apply("gelu"), at::gelu(input)));
  EXPECT_TRUE(at::equal(apply("sigmoid"), at::sigmoid(input)));
}

TEST(LayersTest, PoolingOfOddImagesIsTorchs) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto format : {at::MemoryFormat::Contiguous, kChannelsLast}) {
      for (const std::int64_t extent : {2, 3}) {
        MaxPool2d layer("pool", extent);
        const at::Tensor images = at::randn({2, 19, 11, 13}).to(type).contiguous(format);
        const at::Tensor ours = images.clone().requires_grad_();
        const at::Tensor theirs = images.clone().requires_grad_();
        const at::Tensor expected = at::max_pool2d(theirs, extent, extent);
        const at::Tensor out = layer.forward({ours}, {})[0];
        EXPECT_TRUE(at::equal(out, expected));
        const at::Tensor gradient = at::randn(out.sizes()).to(type);
        out.backward(gradient);
        expected.backward(gradient);
        EXPECT_TRUE(at::equal(ours.grad(), theirs.grad()));
      }
    }
  }
}

TEST(LayersTest, StridedAndPaddedConvolutionIsTorchs) {
  Conv2d layer("conv", {.in_channels = 2, .out_channels = 4, .kernel = 3, .stride = 2, .padding = 1});
  for (auto& parameter : layer.parameters()) parameter.value.data().normal_();
  const at::Tensor input = at::randn({2, 2, 9, 10});
  const auto& p = layer.parameters();
  const at::Tensor out = layer.forward({input}, {})[0];
  EXPECT_TRUE(at::allclose(out, at::conv2d(input, p[0].value, p[1].value, 2, 1)));
  EXPECT_EQ(layer.output_shapes({input.sizes().vec()})[0], out.sizes().vec());
  EXPECT_THROW(layer.forward({at::randn({2, 3, 9, 10})}, {}), Error);
}

// A user's network may keep it turned.
TEST(LayersTest, MeansOfWordsTakeATableThatLiesOtherwise) {
  at::manual_seed(2);
  const at::Tensor ids = at::tensor({3, 1, 2, 4, 0, 0}, at::kInt).view({2, 3});
  const at::Tensor turned = at::randn({7, 5});  // 5 words
  std::vector<at::Tensor> found;
  for (const Kernels kernels : {Kernels::own, Kernels::libtorch}) {
    const KernelScope scope(kernels);
    const at::Tensor leaf = turned.clone().requires_grad_();
    const at::Tensor means = bag_means(ids, leaf.t(), nullptr, "words");
    means.square().sum().backward();
    found.insert(found.end(), {means.detach(), leaf.grad()});
  }
  EXPECT_TRUE(at::allclose(found[0], found[2]));
  EXPECT_TRUE(at::allclose(found[1], found[3]));
}

TEST(DropoutTest, GradientUsesTheMaskOfTheForwardPass) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    Dropout layer("dropout", 0.4);
    const at::Tensor input = at::ones({37, 51}, type).requires_grad_();
    const at::Tensor out = layer.forward({input}, {.seed = 3, .step = 5, .micro_batch = 2})[0];
    out.backward(at::full({37, 51}, 2.0, type));
    EXPECT_TRUE(at::equal(input.grad(), 2.0 * out));
    const double dropped = (out == 0).sum().item<double>() / static_cast<double>(out.numel());
    EXPECT_NEAR(dropped, 0.4, 0.04);
    EXPECT_NEAR(out.max().item<double>(), 1.0 / 0.6, 1e-4);
  }
}

TEST(DropoutTest, TheMaskFollowsSeedStepMicroBatchAndLayerOnly) {
  Dropout layer("dropout", 0.5);
  const at::Tensor input = at::ones({1000});
  const Context context{.seed = 3, .step = 5, .micro_batch = 2};
  const at::Tensor mask = layer.forward({input}, context)[0];
  EXPECT_TRUE(at::equal(layer.forward({input}, context)[0], mask));
  EXPECT_FALSE(at::equal(layer.forward({input}, {.seed = 4, .step = 5, .micro_batch = 2})[0], mask));
  EXPECT_FALSE(at::equal(layer.forward({input}, {.seed = 3, .step = 6, .micro_batch = 2})[0], mask));
  EXPECT_FALSE(at::equal(layer.forward({input}, {.seed = 3, .step = 5, .micro_batch = 3})[0], mask));
  EXPECT_FALSE(at::equal(Dropout("other", 0.5).forward({input}, context)[0], mask));
}

TEST(DropoutTest, EvaluationDropsNothing) {
  Dropout layer("dropout", 0.5);
  const at::Tensor input = at::ones({10});
  EXPECT_TRUE(at::equal(layer.forward({input}, {.mode = Mode::evaluation})[0], input));
  EXPECT_THROW(Dropout("dropout", 1.0), Error);
  EXPECT_THROW(Dropout("dropout", -0.1), Error);
}

}  // namespace
}  // namespace dtrain::models
