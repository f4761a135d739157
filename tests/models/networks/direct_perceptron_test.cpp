#include "models/networks/direct_perceptron.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "core/error.hpp"
#include "kernels/small_gemm.hpp"
#include "models/compute/gradient_place.hpp"
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

class DirectPerceptronTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!kernels::has_small_gemm()) GTEST_SKIP() << "this processor lacks the kernels";
  }
  at::Tensor inputs_ =
      at::sin(at::arange(kSamples * 42, at::kDouble) * 0.3).reshape({kSamples, 1, 6, 7}).to(GetParam());
  at::Tensor targets_ = at::remainder(at::arange(kSamples, at::kLong), 4);
};
INSTANTIATE_TEST_SUITE_P(Types, DirectPerceptronTest, testing::Values(at::kFloat, at::kDouble));

TEST_P(DirectPerceptronTest, LossAndGradientsEqualThoseOfTheLayers) {
  const double tolerance = GetParam() == at::kFloat ? 1e-5 : 1e-12;
  auto model = perceptron(GetParam());
  Tensors flowing = {inputs_};
  for (const auto& layer : model->layers()) flowing = layer->run(flowing, {});
  const auto expected = model->loss(flowing, targets_);
  expected.loss.backward();

  const Places places(*model);
  auto direct = DirectPerceptron::of(*model);
  ASSERT_NE(direct, nullptr);
  ASSERT_TRUE(direct->fits());
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

TEST_P(DirectPerceptronTest, TheBitsOfASampleDoNotDependOnTheOthers) {
  auto model = perceptron(GetParam());
  const Places places(*model);
  auto direct = DirectPerceptron::of(*model);
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

TEST_P(DirectPerceptronTest, AnInputThatIsNotANumberMakesTheLossNone) {
  auto model = perceptron(GetParam());
  const Places places(*model);
  auto direct = DirectPerceptron::of(*model);
  inputs_[2][0][1][1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(direct->forward(inputs_, targets_).loss.item<double>()));
}

TEST_P(DirectPerceptronTest, RefusesSamplesThatDoNotFit) {
  auto model = perceptron(GetParam());
  const Places places(*model);
  auto direct = DirectPerceptron::of(*model);
  EXPECT_THROW(direct->forward(inputs_.narrow(2, 0, 5), targets_), Error);
  EXPECT_THROW(direct->forward(inputs_, targets_.narrow(0, 0, 3)), Error);
  EXPECT_THROW(direct->forward(inputs_, targets_ + 1), Error) << "4 is no class";
}

TEST_P(DirectPerceptronTest, FitsOnlyModelsOfSuchLayersWhoseFactorsAreWanted) {
  auto model = perceptron(GetParam());
  auto direct = DirectPerceptron::of(*model);
  ASSERT_NE(direct, nullptr);
  EXPECT_FALSE(direct->fits()) << "gradients are wanted";
  {
    const Places places(*model);
    EXPECT_TRUE(direct->fits());
  }
  EXPECT_FALSE(direct->fits());
  EXPECT_EQ(DirectPerceptron::of(*perceptron(GetParam(), {{"activation", "tanh"}})), nullptr);
  EXPECT_NE(DirectPerceptron::of(*perceptron(GetParam(), {{"hidden", ""}})), nullptr);
  const auto regression =
      find_model("mlp").make({.task = "regression", .sample_shape = {12}, .targets = 1}, {});
  EXPECT_EQ(DirectPerceptron::of(*regression), nullptr);
  const auto cnn = find_model("cnn").make(
      {.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10}, {});
  EXPECT_EQ(DirectPerceptron::of(*cnn), nullptr);
}

}  // namespace
}  // namespace dtrain::models
