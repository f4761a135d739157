#include <ATen/autocast_mode.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "models/compute/precision.hpp"
#include "models/layers/linear.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

/// What a model gives and the gradients it leaves, computed with products in `half`.
struct Pass {
  Tensors raw;  ///< As the last layer gave them.
  at::Tensor outputs;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> sums;  ///< Of its buffers.
};

class MixedPrecision : public testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {
 protected:
  Pass pass(std::optional<at::ScalarType> half) const {
    const Registration& registration = find_model(std::get<0>(GetParam()));
    const auto facts = facts_for(registration);
    // Narrow: a CPU without fp16 products takes minutes for the whole network's.
    const bool narrows = registration.name == "vgg11" || registration.name == "resnet18";
    const auto model = registration.make(facts, narrows ? ModelOptions{{"width", "8"}} : ModelOptions{});
    model->initialise(5);
    at::manual_seed(7);
    Tensors flowing = inputs_for(*model, facts, 16);
    const Context context{.step = 1, .feedback = Feedback::targets, .half = half};
    for (auto& layer : model->layers()) flowing = layer->run(flowing, context);
    Pass result{.raw = flowing, .outputs = in_full(flowing.at(0)), .gradients = {}, .sums = {}};
    at::manual_seed(8);
    (result.outputs * at::randn(result.outputs.sizes())).sum().backward();
    for (const Parameter* parameter : model->parameters())
      result.gradients.push_back(parameter->value.grad());
    for (const Buffer* buffer : model->buffers()) result.sums.push_back(buffer->step_sum);
    return result;
  }
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  const double size = b.norm().item<double>();
  return (a - b).norm().item<double>() / (size > 0 ? size : 1.0);
}

// A product is off by the type's rounding, 2^-9 or 2^-12, and a dozen layers add that up. Where a ReLU or a
// maximum goes the other way, which happens to a share of the elements like that rounding, a gradient is
// another one: the norm of the difference goes with its root.
TEST_P(MixedPrecision, IsNearFullPrecisionAndLeavesGradientsInIt) {
  const auto half = std::get<1>(GetParam());
  const auto full = pass(std::nullopt);
  const auto mixed = pass(half);
  EXPECT_EQ(mixed.raw.at(0).scalar_type(), half) << "the products are not in half precision";
  EXPECT_EQ(full.raw.at(0).scalar_type(), at::kFloat);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU)) << "the scope outlives the layer";

  const double rounding = half == at::kBFloat16 ? 0x1p-9 : 0x1p-12;
  const double bound = 12 * rounding;
  EXPECT_LT(distance(mixed.outputs, full.outputs), bound);
  EXPECT_GT(distance(mixed.outputs, full.outputs), 0.0);
  ASSERT_EQ(mixed.gradients.size(), full.gradients.size());
  double squares = 0;
  double apart = 0;
  for (std::size_t i = 0; i < full.gradients.size(); ++i) {
    ASSERT_EQ(mixed.gradients[i].defined(), full.gradients[i].defined());
    if (!full.gradients[i].defined()) continue;
    EXPECT_EQ(mixed.gradients[i].scalar_type(), at::kFloat);
    squares += full.gradients[i].square().sum().item<double>();
    apart += (mixed.gradients[i] - full.gradients[i]).square().sum().item<double>();
  }
  EXPECT_LT(std::sqrt(apart / squares), 7 * std::sqrt(rounding));
  for (std::size_t i = 0; i < full.sums.size(); ++i) {
    if (!full.sums[i].defined()) continue;
    EXPECT_LT(distance(mixed.sums[i], full.sums[i]), bound) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision,
                         testing::Combine(testing::ValuesIn(model_names()),
                                          testing::Values(at::kBFloat16, at::kHalf)),
                         [](const auto& given) {
                           return std::get<0>(given.param) +
                                  (std::get<1>(given.param) == at::kHalf ? "_fp16" : "_bf16");
                         });

TEST(ProductScope, AnInnerOneCanAskForFullPrecision) {
  const at::Tensor a = at::randn({3, 3});
  const ProductScope half(at::kBFloat16);
  EXPECT_EQ(a.mm(a).scalar_type(), at::kBFloat16);
  {
    const ProductScope full(std::nullopt);
    EXPECT_EQ(a.mm(a).scalar_type(), at::kFloat);
    EXPECT_EQ(as_factor(a).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(a.mm(a).scalar_type(), at::kBFloat16);
  EXPECT_EQ(as_factor(a).scalar_type(), at::kBFloat16);
}

// The gradient of a weight is in full precision, however many rows there are, and whether there is a copy of
// it or not, as where ranks hold shards of layers.
TEST(HalfLinear, ItsGradientsAreThoseOfTheRoundedNumbers) {
  for (const auto& [rows, has_copy] : {std::pair(0, true), std::pair(3, true), std::pair(100, true),
                                       std::pair(3, false), std::pair(100, false)}) {
    Linear layer("linear", 70, 41);
    const at::NoGradGuard by_hand;
    for (Parameter& parameter : layer.parameters()) parameter.value.normal_();
    Parameter& weight = layer.parameters()[0];
    const at::Tensor half = weight.value.to(at::kBFloat16);
    if (has_copy) weight.half = half;
    const at::AutoGradMode recorded(true);
    const at::Tensor x = at::randn({rows, 70}).to(at::kBFloat16).requires_grad_();
    const at::Tensor y = layer.run({x}, {.half = at::kBFloat16})[0];
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    const at::Tensor gradient = at::randn({rows, 41}).to(at::kBFloat16);
    y.backward(gradient);
    const auto wide = [](const at::Tensor& value) { return value.detach().to(at::kFloat); };
    EXPECT_LE(distance(wide(y), at::linear(wide(x), wide(half), layer.parameters()[1].value.detach())),
              0x1p-8);
    EXPECT_LE(distance(wide(x.grad()), at::mm(wide(gradient), wide(half))), 0x1p-8);
    EXPECT_LE(distance(weight.value.grad(), at::mm(wide(gradient).t(), wide(x))), rows > 64 ? 0x1p-8 : 1e-6);
    EXPECT_LE(distance(layer.parameters()[1].value.grad(), wide(gradient).sum(0)), 1e-6);
  }
}

}  // namespace
}  // namespace dtrain::models
