#include "models/networks/direct_network.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "kernels/small_gemm.hpp"
#include "models/compute/gradient_place.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/losses/losses.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kSamples = 9;

std::unique_ptr<Model> perceptron(at::ScalarType type, const ModelOptions& options = {{"hidden", "50,20"}}) {
  auto model = find_model("mlp").make(
      {.task = "image_classification", .sample_shape = {1, 6, 7}, .classes = 4}, options);
  model->to(type, at::kCPU);
  model->initialise(3);
  return model;
}

/// The places of a model's weights, as long as gradients are wanted as factors.
class Places {
 public:
  explicit Places(Model& model) {
    for (auto* const parameter : model.parameters()) {
      if (parameter->value.dim() != 2) continue;
      factors.emplace_back();
      places_.emplace_back(*parameter, factors.back());
    }
  }
  std::deque<ProductFactors> factors;  // by layer

 private:
  std::deque<GradientPlace> places_;
};

class DirectNetworkTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!kernels::has_small_gemm()) GTEST_SKIP() << "this processor lacks the kernels";
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }
  const int threads_ = at::get_num_threads();
  at::Tensor inputs_ =
      at::sin(at::arange(kSamples * 42, at::kDouble) * 0.3).reshape({kSamples, 1, 6, 7}).to(GetParam());
  at::Tensor targets_ = at::remainder(at::arange(kSamples, at::kLong), 4);
};
INSTANTIATE_TEST_SUITE_P(Types, DirectNetworkTest, testing::Values(at::kFloat, at::kDouble));

TEST_P(DirectNetworkTest, LossAndGradientsEqualThoseOfTheLayers) {
  const double tolerance = GetParam() == at::kFloat ? 1e-5 : 1e-12;
  auto model = perceptron(GetParam());
  Tensors flowing = {inputs_};
  for (const auto& layer : model->layers()) flowing = layer->run(flowing, {});
  const auto expected = model->loss(flowing, targets_);
  expected.loss.backward();

  const Places places(*model);
  auto direct = DirectNetwork::of(*model);
  ASSERT_NE(direct, nullptr);
  ASSERT_TRUE(direct->fits(kSamples, 3));
  const auto sums = direct->forward(inputs_, targets_);
  EXPECT_NEAR(sums.loss.item<double>(), expected.loss.item<double>(), 10 * tolerance);
  EXPECT_EQ(sums.correct.item<std::int64_t>(), expected.correct.item<std::int64_t>());
  EXPECT_EQ(sums.weight, expected.weight);
  EXPECT_EQ(sums.counted, expected.counted);
  direct->backward();
  std::size_t i = 0;
  for (const auto& layer : model->layers()) {
    if (layer->parameters().empty()) continue;
    const auto& [input, output_gradient] = places.factors.at(i++);
    const auto& parameters = layer->parameters();
    const auto gap = [](const at::Tensor& a, const at::Tensor& b) {
      return (a - b).abs().max().item<double>();
    };
    EXPECT_LT(gap(output_gradient.t().mm(input), parameters[0].value.grad()), tolerance) << layer->name();
    EXPECT_LT(gap(output_gradient.sum(0), parameters[1].value.grad()), tolerance) << layer->name();
  }
  EXPECT_EQ(i, 3U);
}

TEST_P(DirectNetworkTest, TheBitsOfASampleDoNotDependOnTheOthers) {
  auto model = perceptron(GetParam());
  const Places places(*model);
  auto direct = DirectNetwork::of(*model);
  direct->forward(inputs_, targets_);
  direct->backward();
  const auto all = places.factors;
  for (std::int64_t s = 0; s < kSamples; ++s) {
    direct->forward(inputs_.narrow(0, s, 1), targets_.narrow(0, s, 1));
    direct->backward();
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(at::equal(places.factors[i].input[0], all[i].input[s])) << s;
      EXPECT_TRUE(at::equal(places.factors[i].output_gradient[0], all[i].output_gradient[s])) << s;
    }
  }
}

TEST_P(DirectNetworkTest, AnInputThatIsNotANumberMakesTheLossNone) {
  auto model = perceptron(GetParam());
  const Places places(*model);
  auto direct = DirectNetwork::of(*model);
  inputs_[2][0][1][1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(direct->forward(inputs_, targets_).loss.item<double>()));
}

TEST_P(DirectNetworkTest, RefusesSamplesThatDoNotFit) {
  auto model = perceptron(GetParam());
  const Places places(*model);
  auto direct = DirectNetwork::of(*model);
  EXPECT_THROW(direct->forward(inputs_.narrow(2, 0, 5), targets_), Error);
  EXPECT_THROW(direct->forward(inputs_, targets_.narrow(0, 0, 3)), Error);
  EXPECT_THROW(direct->forward(inputs_, targets_ + 1), Error) << "4 is no class";
}

/// Gradients of one micro-batch, by parameter.
std::vector<at::Tensor> gradients_of(Model& model) {
  std::vector<at::Tensor> gradients;
  for (auto* const parameter : model.parameters()) {
    gradients.push_back(parameter->value.grad());
    parameter->value.mutable_grad().reset();
  }
  return gradients;
}

std::unique_ptr<Model> convolutions(const std::string& name, at::ScalarType type) {
  const bool classifies = name == "cnn";
  auto model = find_model(name).make(
      {.task = "image_classification", .sample_shape = {3, 24, 16}, .classes = classifies ? 4 : 0}, {});
  model->to(type, at::kCPU);
  model->initialise(5);
  return model;
}

at::Tensor images(at::ScalarType type, std::int64_t samples, double phase) {
  return at::sin(at::arange(samples * 3 * 24 * 16, at::kDouble) * 0.37 + phase)
      .reshape({samples, 3, 24, 16})
      .to(type);
}

TEST_P(DirectNetworkTest, ConvolutionsLeaveTheGradientsOfTheLayersForAnyNumberOfSamples) {
  const double tolerance = GetParam() == at::kFloat ? 2e-4 : 1e-11;
  for (const std::string name : {"cnn", "conv_autoencoder"}) {
    auto model = convolutions(name, GetParam());
    auto direct = DirectNetwork::of(*model);
    ASSERT_NE(direct, nullptr) << name;
    for (const std::int64_t samples : {9, 1, 8, 33, 9, 9}) {  // its memory is kept, and made anew
      const at::Tensor inputs = images(GetParam(), samples, static_cast<double>(samples));
      const at::Tensor targets =
          name == "cnn" ? at::remainder(at::arange(samples, at::kLong), 4) : inputs.clone();
      if (!direct->fits(samples, 1)) {
        EXPECT_LT(samples, 8) << name;
        EXPECT_NE(name, "cnn");
        continue;
      }
      Tensors flowing = {inputs.clone()};
      for (const auto& layer : model->layers()) flowing = layer->run(flowing, {});
      const auto expected = model->loss(flowing, targets);
      expected.loss.backward();
      const auto of_layers = gradients_of(*model);
      const at::Tensor before = inputs.clone();
      {
        const at::NoGradGuard no_graph;
        const auto sums = direct->forward(inputs, targets);
        EXPECT_NEAR(sums.loss.item<double>(), expected.loss.item<double>(), tolerance);
        EXPECT_FALSE(sums.loss.requires_grad());
        EXPECT_EQ(sums.weight, expected.weight);
        EXPECT_EQ(sums.correct.defined(), expected.correct.defined());
        direct->backward();
      }
      EXPECT_TRUE(at::equal(inputs, before)) << "the samples are somebody else's";
      const auto found = gradients_of(*model);
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_TRUE(found[i].defined()) << model->parameters()[i]->name;
        EXPECT_TRUE(at::allclose(found[i], of_layers[i], tolerance, tolerance))
            << name << ' ' << model->parameters()[i]->name << ' ' << samples;
      }
    }
  }
}

TEST_P(DirectNetworkTest, GradientsOfSeveralPassesAreAddedUpInThePlaceThatIsOffered) {
  auto model = convolutions("cnn", GetParam());
  auto direct = DirectNetwork::of(*model);
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> sums;
  for (const double phase : {0.0, 1.0}) {
    direct->forward(images(GetParam(), 8, phase), at::remainder(at::arange(8, at::kLong), 4));
    direct->backward();
    const auto gradients = gradients_of(*model);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      phase == 0.0 ? sums.push_back(gradients[i].clone()) : static_cast<void>(sums[i].add_(gradients[i]));
    }
  }
  std::deque<GradientPlace> places;
  std::vector<at::Tensor> memory;
  for (auto* const parameter : model->parameters()) {
    memory.push_back(at::empty_like(parameter->value).detach());
    places.emplace_back(*parameter).offer(memory.back().alias());
  }
  for (const double phase : {0.0, 1.0}) {
    direct->forward(images(GetParam(), 8, phase), at::remainder(at::arange(8, at::kLong), 4));
    direct->backward();
  }
  const auto found = gradients_of(*model);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& parameter = *model->parameters()[i];
    EXPECT_TRUE(at::equal(found[i], sums[i])) << parameter.name;
    if (parameter.value.dim() == 1) continue;  // LibTorch adds up a convolution's biases
    EXPECT_EQ(found[i].data_ptr(), memory[i].data_ptr()) << parameter.name;
  }
}

TEST_P(DirectNetworkTest, FitsWhereTheLayersAreNotFasterAndNobodyWatchesThem) {
  auto model = perceptron(GetParam());
  auto direct = DirectNetwork::of(*model);
  ASSERT_NE(direct, nullptr);
  EXPECT_TRUE(direct->fits(kSamples, 1));
  EXPECT_FALSE(direct->fits(kSamples, 2)) << "the layers may make one product of several micro-batches";
  EXPECT_FALSE(direct->fits(1 << 16, 1)) << "such products are a library's";
  {
    const Places places(*model);
    EXPECT_TRUE(direct->fits(1 << 16, 2)) << "nobody makes the gradients";
  }
  at::set_num_threads(2);
  EXPECT_FALSE(direct->fits(kSamples, 1)) << "its products use one thread";
  at::set_num_threads(1);
  SampleTap tap(model->parameters());
  const SampleTap::Scope open(tap);
  EXPECT_FALSE(direct->fits(kSamples, 1));
}

TEST_P(DirectNetworkTest, IsMadeOnlyOfModelsOfSuchLayers) {
  const DatasetFacts facts{.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10};
  EXPECT_EQ(DirectNetwork::of(*perceptron(GetParam(), {{"activation", "tanh"}})), nullptr);
  EXPECT_NE(DirectNetwork::of(*perceptron(GetParam(), {{"hidden", ""}})), nullptr);
  EXPECT_EQ(DirectNetwork::of(*find_model("vgg11").make(facts, {})), nullptr);
  EXPECT_EQ(DirectNetwork::of(*find_model("resnet18").make(facts, {})), nullptr);
  const auto regression =
      find_model("mlp").make({.task = "regression", .sample_shape = {12}, .targets = 1}, {});
  EXPECT_NE(DirectNetwork::of(*regression), nullptr);
  auto frozen = perceptron(GetParam());
  frozen->parameters().front()->frozen = true;
  EXPECT_EQ(DirectNetwork::of(*frozen), nullptr);
}

/// A model of somebody else's, with the layers of this library.
class OtherModel final : public Model {
 public:
  explicit OtherModel(std::vector<std::unique_ptr<Layer>> layers) : Model("other", std::move(layers)) {}
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return regression_sums(Loss::mse, outputs.at(0), targets);
  }
};

template <class... Layers>
std::unique_ptr<Model> model_of(Layers... given) {
  std::vector<std::unique_ptr<Layer>> layers;
  (layers.push_back(std::move(given)), ...);
  return std::make_unique<OtherModel>(std::move(layers));
}

TEST_P(DirectNetworkTest, IsNotMadeWhereALayerWouldSpoilWhatAnotherOneNeeds) {
  const auto flatten = [] { return std::make_unique<Flatten>("flatten"); };
  const auto linear = [] { return std::make_unique<Linear>("fc", 4, 4); };
  const auto activation = [](Function function, Overwrite overwrite) {
    return std::make_unique<Activation>("activation", function, overwrite);
  };
  const auto relu = [&](Overwrite overwrite) { return activation(Function::relu, overwrite); };
  EXPECT_NE(DirectNetwork::of(*model_of(flatten(), linear(), relu(Overwrite::input))), nullptr);
  EXPECT_EQ(DirectNetwork::of(*model_of(flatten(), linear(), relu(Overwrite::input),
                                        activation(Function::sigmoid, Overwrite::never))),
            nullptr)
      << "the ReLU needs its output";
  EXPECT_EQ(DirectNetwork::of(*model_of(flatten(), relu(Overwrite::input), linear())), nullptr)
      << "the samples are somebody else's";
  EXPECT_EQ(DirectNetwork::of(*model_of(linear(), relu(Overwrite::input))), nullptr)
      << "a sample may have several rows";
}

}  // namespace
}  // namespace dtrain::models
