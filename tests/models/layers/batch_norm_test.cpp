#include "core/error.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/layers/batch_norm2d.hpp"
#include "models/layers/residual_block.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

/// Weights and biases that are not 1 and 0.
void disturb(Layer& layer) {
  const at::NoGradGuard no_grad;
  for (Parameter& parameter : layer.parameters()) parameter.value.uniform_(0.5, 1.5);
}

class Doubles final : public Model {
 public:
  using Model::Model;
  LossSums loss(const Tensors&, const at::Tensor&) const override { return {}; }
};

/// A model of one BatchNorm in double.
std::unique_ptr<Model> norm_model(std::int64_t channels, kernels::Then then) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<BatchNorm2d>("bn", channels, then));
  auto model = std::make_unique<Doubles>("one", std::move(layers));
  model->to(at::kDouble, at::kCPU);
  disturb(*model->layers()[0]);
  return model;
}

TEST(BatchNormTest, TrainingOutputsAndGradientsAreTorchs) {
  at::manual_seed(3);
  for (const kernels::Then then : {kernels::Then::nothing, kernels::Then::relu}) {
    for (const auto format : {at::MemoryFormat::Contiguous, kLast}) {
      const auto model = norm_model(37, then);
      Layer& layer = *model->layers()[0];
      const at::Tensor data = (at::randn({4, 37, 5, 6}, at::kDouble) * 2 + 1).contiguous(format);
      const at::Tensor ours = data.clone().requires_grad_();
      const at::Tensor theirs = data.clone().requires_grad_();
      const at::Tensor weight = layer.parameters()[0].value.detach().clone().requires_grad_();
      const at::Tensor bias = layer.parameters()[1].value.detach().clone().requires_grad_();
      const at::Tensor plain = at::batch_norm(theirs, weight, bias, {}, {}, true, 0.1, 1e-5, false);
      const at::Tensor expected = then == kernels::Then::relu ? at::relu(plain) : plain;
      const at::Tensor out = layer.forward({ours}, {})[0];
      EXPECT_TRUE(at::allclose(out, expected, 1e-12, 1e-12));
      const at::Tensor gradient = at::randn_like(out);
      out.backward(gradient);
      expected.backward(gradient);
      EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-11, 1e-12));
      EXPECT_TRUE(at::allclose(layer.parameters()[0].value.grad(), weight.grad(), 1e-11, 1e-11));
      EXPECT_TRUE(at::allclose(layer.parameters()[1].value.grad(), bias.grad(), 1e-11, 1e-11));
    }
  }
}

// A user's network may keep them as columns of a table, or compute the bias in half precision.
TEST(BatchNormTest, WeightAndBiasMayLieAnywhere) {
  at::manual_seed(7);
  const at::Tensor data = at::randn({4, 24, 5, 6}).to(at::kBFloat16, false, true, kLast);
  const at::Tensor numbers = at::rand({24, 3}) + 0.5;
  const auto train = [&](Kernels kernels, bool columns) {
    const KernelScope scope(kernels);
    const at::Tensor table = numbers.clone().requires_grad_();
    const at::Tensor weight = table.select(1, 1);
    const at::Tensor bias = table.select(1, 2);
    std::vector<Parameter> parameters = {
        {.name = "weight", .value = columns ? weight : weight.contiguous()},
        {.name = "bias", .value = columns ? bias.to(at::kBFloat16) : bias.contiguous()}};
    std::vector<Parameter> unused;
    std::vector<Buffer> buffers;
    const BatchNorm place = BatchNorm::add("bn", 24, unused, buffers, Slicing::none);
    const at::Tensor y = batch_norm({.input = data, .residual = {}, .then = kernels::Then::relu}, place,
                                    parameters, buffers, Context{.mode = Mode::training});
    y.to(at::kFloat).square().sum().backward();
    return std::vector{y.detach().to(at::kFloat), table.grad()};
  };
  const auto expected = train(Kernels::fused, false);
  const auto found = train(Kernels::fused, true);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(at::allclose(found[i], expected[i], 2e-2, 2e-2))
        << i << ' ' << (found[i] - expected[i]).abs().max();
}

// Sums are of the whole tensor in any case: in bfloat16 only what goes in and out is rounded.
TEST(BatchNormTest, InBfloat16ItIsTheSameToRounding) {
  at::manual_seed(6);
  for (const auto mode : {Mode::training, Mode::evaluation}) {
    const auto full = model_of(std::make_unique<BatchNorm2d>("bn", 37, kernels::Then::relu), at::kFloat);
    const auto half = model_of(std::make_unique<BatchNorm2d>("bn", 37, kernels::Then::relu), at::kFloat);
    const at::Tensor data = (at::randn({4, 37, 5, 6}) * 0.1 + 40).to(at::kBFloat16);  // a large mean
    const auto pass = [&](Model& model, const at::Tensor& input) {
      const at::Tensor out = run(model, input, {.mode = mode})[0];
      EXPECT_EQ(out.scalar_type(), input.scalar_type());
      at::manual_seed(8);
      out.backward(at::randn(out.sizes()).to(at::kBFloat16).to(out.scalar_type()));
      return out.detach().to(at::kFloat);
    };
    const at::Tensor narrow = data.clone().requires_grad_();
    const at::Tensor wide = data.to(at::kFloat).requires_grad_();
    EXPECT_TRUE(pass(*half, narrow).equal(pass(*full, wide).to(at::kBFloat16).to(at::kFloat)));
    EXPECT_TRUE(narrow.grad().equal(wide.grad().to(at::kBFloat16)));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(half->parameters()[i]->value.grad().equal(full->parameters()[i]->value.grad()));
      EXPECT_TRUE(half->buffers()[i]->step_sum.equal(full->buffers()[i]->step_sum));
    }
  }
}

TEST(BatchNormTest, EvaluationUsesTheRunningStatisticsAndIsDifferentiable) {
  const auto model = norm_model(8, kernels::Then::relu);
  Layer& layer = *model->layers()[0];
  layer.buffers()[0].value.uniform_(-1, 1);
  layer.buffers()[1].value.uniform_(0.5, 2);
  const at::Tensor data = at::randn({3, 8, 4, 4}, at::kDouble);
  const at::Tensor ours = data.clone().requires_grad_();
  const at::Tensor theirs = data.clone().requires_grad_();
  const auto& p = layer.parameters();
  const at::Tensor expected =
      at::relu(at::batch_norm(theirs, p[0].value.detach(), p[1].value.detach(), layer.buffers()[0].value,
                              layer.buffers()[1].value, false, 0.1, 1e-5, false));
  const at::Tensor out = layer.forward({ours}, {.mode = Mode::evaluation})[0];
  EXPECT_TRUE(at::allclose(out, expected, 1e-12, 1e-12));
  out.sum().backward();
  expected.sum().backward();
  EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-12, 1e-12));
  EXPECT_EQ(layer.buffers()[0].step_weight, 0.0);  // nothing is learnt in evaluation
}

TEST(BatchNormTest, AForwardPassAddsToTheStepsSumsOnceAndLeavesTheRunningStatistics) {
  const auto model = norm_model(8, kernels::Then::nothing);
  auto& buffers = model->layers()[0]->buffers();
  EXPECT_EQ(buffers[0].name, "bn.running_mean");
  EXPECT_EQ(buffers[1].name, "bn.running_var");
  EXPECT_EQ(buffers[2].name, "bn.num_batches_tracked");
  const at::Tensor data = at::randn({4, 8, 3, 3}, at::kDouble);
  model->layers()[0]->forward({data}, {});
  model->layers()[0]->forward({data}, {.pass = Pass::repeated});
  EXPECT_EQ(buffers[0].step_weight, 4.0);
  EXPECT_TRUE(at::allclose(buffers[0].step_sum / 4, data.mean({0, 2, 3})));
  EXPECT_TRUE(at::allclose(buffers[1].step_sum / 4, data.var({0, 2, 3}, /*unbiased=*/true)));
  EXPECT_TRUE(at::equal(buffers[0].value, at::zeros({8}, at::kDouble)));
  EXPECT_TRUE(at::equal(buffers[1].value, at::ones({8}, at::kDouble)));
}

TEST(BatchNormTest, AChannelOfOneValueHasNoVarianceToLearn) {
  const auto model = norm_model(8, kernels::Then::nothing);
  Layer& layer = *model->layers()[0];
  const at::Tensor out = layer.forward({at::randn({1, 8, 1, 1}, at::kDouble)}, {})[0];
  EXPECT_TRUE(at::allclose(out.flatten(), layer.parameters()[1].value.detach()));
  EXPECT_EQ(layer.buffers()[1].step_weight, 0.0);
  EXPECT_THROW(layer.forward({at::randn({1, 7, 2, 2}, at::kDouble)}, {}), Error);
}

TEST(ResidualBlockTest, OutputsAndGradientsAreThoseOfTheFormula) {
  at::manual_seed(4);
  for (const std::int64_t stride : {1, 2}) {
    const std::int64_t out_channels = stride == 1 ? 6 : 10;
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(std::make_unique<ResidualBlock>("b", 6, out_channels, stride));
    Doubles model("one", std::move(layers));
    model.to(at::kDouble, at::kCPU);
    disturb(*model.layers()[0]);
    std::map<std::string, at::Tensor> p;
    for (const Parameter* parameter : model.parameters()) {
      p[parameter->name] = parameter->value.detach().clone().requires_grad_();
    }
    const auto norm = [&](const at::Tensor& x, const std::string& name) {
      return at::batch_norm(x, p.at(name + ".weight"), p.at(name + ".bias"), {}, {}, true, 0.1, 1e-5, false);
    };
    const at::Tensor ours = at::randn({3, 6, 7, 8}, at::kDouble).requires_grad_();
    const at::Tensor theirs = ours.detach().clone().requires_grad_();
    at::Tensor y = at::relu(norm(at::conv2d(theirs, p.at("b.conv1.weight"), {}, stride, 1), "b.bn1"));
    y = norm(at::conv2d(y, p.at("b.conv2.weight"), {}, 1, 1), "b.bn2");
    const at::Tensor skip =
        stride == 1 ? theirs
                    : norm(at::conv2d(theirs, p.at("b.downsample.0.weight"), {}, stride), "b.downsample.1");
    const at::Tensor expected = at::relu(y + skip);
    const at::Tensor out = model.layers()[0]->forward({ours}, {})[0];
    EXPECT_EQ(model.layers()[0]->output_shapes({ours.sizes().vec()})[0], out.sizes().vec());
    EXPECT_TRUE(at::allclose(out, expected, 1e-11, 1e-11));
    const at::Tensor gradient = at::randn_like(out);
    out.backward(gradient);
    expected.backward(gradient);
    EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-10, 1e-11));
    for (const Parameter* parameter : model.parameters()) {
      EXPECT_TRUE(at::allclose(parameter->value.grad(), p.at(parameter->name).grad(), 1e-10, 1e-10))
          << parameter->name;
    }
  }
}

}  // namespace
}  // namespace dtrain::models
