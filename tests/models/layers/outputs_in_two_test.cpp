#include "models/layers/outputs_in_two.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/linear.hpp"
#include "models/slicing/slices.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

struct LayerInTwo {
  std::function<std::unique_ptr<Layer>()> make;
  Shape input;
  std::int64_t outputs;
};

/// Odd sizes, with and without a bias, channels first and last.
std::vector<LayerInTwo> layers_in_two() {
  const auto convolution = [](const Conv2d::Geometry& geometry, const Conv2d::Style& style) {
    return [geometry, style] { return std::make_unique<Conv2d>("conv", geometry, style); };
  };
  const Conv2d::Geometry wide{.in_channels = 48, .out_channels = 96, .kernel = 3, .padding = 1};
  const Conv2d::Geometry odd{.in_channels = 3, .out_channels = 7, .kernel = 3, .stride = 2};
  return {{convolution(wide, {.format = kChannelsLast, .slicing = Slicing::channels_in}), {5, 48, 9, 7}, 96},
          {convolution(odd, {.bias = Conv2d::Bias::no}), {4, 3, 8, 11}, 7},
          {[] { return std::make_unique<Linear>("linear", 33, 64, Slicing::column); }, {3, 33}, 64},
          {[] { return std::make_unique<Linear>("linear", 5, 2); }, {1, 5}, 2}};
}

/// The outputs, and after them the gradients of the input and of all whole parameters.
Tensors passed(Model& model, const at::Tensor& given) {
  const at::Tensor input = given.clone().set_requires_grad(true);
  const Tensors outputs = run(model, input);
  EXPECT_EQ(outputs.size(), 1U);
  const at::Tensor weights = at::arange(outputs[0].numel(), given.options()).view(outputs[0].sizes()).cos();
  torch::autograd::backward({(outputs[0] * weights).sum()}, {});
  Tensors all = {outputs[0], input.grad()};
  std::map<std::string, at::Tensor> gradients;
  for (const auto& layer : model.layers()) {
    for (const Parameter& parameter : layer->parameters()) {
      auto& whole = gradients[parameter.name];
      const auto shape = whole_shape(parameter.value, parameter.slice);
      if (!whole.defined()) whole = at::zeros(shape, given.options());
      const Range part = parameter.slice != nullptr ? parameter.slice->part : Range{0, shape[0]};
      whole.narrow(0, part.begin, part.size()).add_(parameter.value.grad());
    }
  }
  for (const auto& [name, gradient] : gradients) all.push_back(gradient);
  return all;
}

TEST(OutputsInTwoTest, BothPartsGiveWhatTheWholeLayerGives) {
  for (const auto& [make, shape, outputs] : layers_in_two()) {
    const auto input = at::randn(shape, at::kDouble);
    const auto whole = model_of(make(), at::kDouble);
    const Tensors expected = passed(*whole, input);
    for (const std::int64_t kept : {std::int64_t{1}, outputs / 2, outputs - 1}) {
      const auto model = model_of(make(), at::kDouble);
      ASSERT_EQ(model->layers()[0]->own_outputs(), outputs);
      model->cut_layer(0, kept);
      ASSERT_EQ(model->layers().size(), 2U);
      model->to(at::kDouble, at::kCPU);
      model->initialise(3);
      const Tensors found = passed(*model, input);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-12, 1e-12))
            << model->layers()[0]->name() << ", " << kept << " of " << outputs << ", tensor " << i;
      EXPECT_EQ(model->parameter_count(), whole->parameter_count());
    }
  }
}

TEST(OutputsInTwoTest, ShapesAndCostsAreThoseOfTheWhole) {
  for (const auto& [make, shape, outputs] : layers_in_two()) {
    const auto whole = model_of(make(), at::kDouble);
    const auto model = model_of(make(), at::kDouble);
    model->cut_layer(0, 1);
    const auto first = model->layers()[0]->output_shapes({shape});
    ASSERT_EQ(first.size(), 2U);
    EXPECT_EQ(first[0].at(1), 1);
    EXPECT_EQ(first[1], shape) << "the inputs travel on";
    EXPECT_EQ(model->layers()[1]->output_shapes(first), whole->layers()[0]->output_shapes({shape}));
    const Cost all = whole->layers()[0]->cost({shape});
    const Cost one = model->layers()[0]->cost({shape});
    const Cost other = model->layers()[1]->cost(first);
    EXPECT_DOUBLE_EQ(one.flops + other.flops, all.flops);
    EXPECT_DOUBLE_EQ(one.parameter_bytes + other.parameter_bytes, all.parameter_bytes);
    EXPECT_DOUBLE_EQ(other.activation_bytes, all.activation_bytes) << "all outputs lie there";
  }
}

TEST(OutputsInTwoTest, ParametersArePartsOfTheWholeOnesAndStayFrozen) {
  const auto model = model_of(std::make_unique<Linear>("linear", 3, 8), at::kFloat);
  model->freeze([](const std::string& name) { return name == "linear.bias"; });
  model->cut_layer(0, 3);
  model->initialise(1);
  const auto all = model->parameters();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0]->name, "linear.weight");
  EXPECT_EQ(all[2]->name, "linear.weight");
  EXPECT_FALSE(all[0]->slice->is_shared()) << "no other rank of a tensor group has the rest";
  EXPECT_EQ(all[2]->value.sizes().vec(), (Shape{5, 3}));
  EXPECT_EQ(all[2]->slice->part.begin, 3);
  EXPECT_TRUE(all[1]->frozen && all[3]->frozen);
  EXPECT_TRUE(all[0]->value.requires_grad() && !all[3]->value.requires_grad());
  const auto rectangle = rectangle_of("linear.weight", *all[2]->slice);
  EXPECT_EQ(rectangle.global_shape, (Shape{8, 3}));
  EXPECT_EQ(rectangle.offset, (Shape{3, 0}));
  EXPECT_EQ(rectangle.extent, (Shape{5, 3}));
}

TEST(OutputsInTwoTest, OtherLayersHaveNoOutputsOfTheirOwn) {
  const auto model =
      model_of(std::make_unique<Activation>("relu", Function::relu, Overwrite::never), at::kFloat);
  EXPECT_EQ(model->layers()[0]->own_outputs(), 0);
  EXPECT_THROW(model->cut_layer(0, 1), Error);
}

}  // namespace
}  // namespace dtrain::models
