// Models where memory is a device's: see support/guarded_device.hpp.
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "models/compute/precision.hpp"
#include "models/support.hpp"
#include "support/guarded_device.hpp"

namespace dtrain::models {
namespace {

TEST(GuardedDevice, LetsOperationsInAndNobodyElse) {
  const at::Tensor values = at::arange(6).to(at::kFloat).to(kGuarded);
  EXPECT_EQ(values.device(), kGuarded);
  EXPECT_EQ(values.mul(2).sum().item<float>(), 30.0F);
  const auto touch = [&] {
    float first = 0;
    std::memcpy(&first, values.data_ptr(), sizeof(first));
    std::_Exit(first == 0 ? 0 : 1);
  };
  // By SIGSEGV, which the address sanitizer turns into an exit code of its own.
  const auto is_refused = [](int status) {
    return testing::KilledBySignal(SIGSEGV)(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 1);
  };
  EXPECT_EXIT(touch(), is_refused, "");
}

/// What a model gives on a device, all of it copied to the CPU.
struct Pass {
  at::Tensor outputs;
  double loss = 0;
  double correct = 0;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> sums;
};

at::Tensor here(const at::Tensor& tensor) { return tensor.defined() ? tensor.cpu() : tensor; }

at::Tensor targets_for(const Model& model, const DatasetFacts& facts, const Tensors& inputs,
                       const Tensors& outputs) {
  if (model.goal() == Goal::own_input) return inputs.at(0);
  if (outputs.size() > 1) return outputs.at(1);  // a translator's own
  const at::Tensor& logits = outputs.at(0);
  if (facts.task == "language_modelling")
    return at::randint(0, facts.vocabulary, {logits.size(0), logits.size(1)}, at::kLong);
  return at::randint(0, facts.classes, {logits.size(0)}, at::kLong);
}

class OnDevice : public testing::TestWithParam<std::string> {
 protected:
  static Pass pass(at::Device device, Mode mode) {
    const Registration& registration = find_model(GetParam());
    const auto facts = facts_for(registration);
    const bool narrows = registration.name == "vgg11" || registration.name == "resnet18";
    const auto model = registration.make(facts, narrows ? ModelOptions{{"width", "8"}} : ModelOptions{});
    model->to(at::kFloat, device);
    model->initialise(5);
    at::manual_seed(7);
    const Tensors inputs = inputs_for(*model, facts, 6);
    Tensors flowing;
    for (const at::Tensor& input : inputs)
      flowing.push_back(input.is_floating_point() ? input.to(device) : input);
    const Tensors given = flowing;
    const Context context{.mode = mode, .step = 1, .feedback = Feedback::by_chance};
    for (auto& layer : model->layers()) flowing = layer->run(flowing, context);
    const at::Tensor targets = targets_for(*model, facts, given, flowing);
    const LossSums sums = model->loss(flowing, targets);
    EXPECT_EQ(sums.loss.device(), device);
    EXPECT_EQ(flowing.at(0).device(), device);
    sums.loss.backward();
    Pass result{.outputs = here(flowing.at(0)).detach(),
                .loss = sums.loss.item<double>(),
                .gradients = {},
                .sums = {}};
    if (sums.correct.defined()) result.correct = static_cast<double>(sums.correct.item<std::int64_t>());
    for (const Parameter* parameter : model->parameters())
      result.gradients.push_back(here(parameter->value.grad()));
    for (const Buffer* buffer : model->buffers()) result.sums.push_back(here(buffer->step_sum));
    return result;
  }
};

// The same sums in another order, where dtrain's own kernels stand in for LibTorch's on the CPU.
constexpr double kRounding = 1e-5;

double norm(const std::vector<at::Tensor>& tensors) {
  double squares = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) squares += tensor.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

/// By the size of all of them: a bias before a BatchNorm has a gradient of nothing but rounding.
void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  const double size = norm(expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
    if (!expected[i].defined()) continue;
    EXPECT_LE(norm({found[i] - expected[i]}), kRounding * size) << i;
  }
}

TEST_P(OnDevice, GivesWhatItGivesOnTheCpu) {
  for (const Mode mode : {Mode::training, Mode::evaluation}) {
    const auto expected = pass(at::kCPU, mode);
    const auto found = pass(kGuarded, mode);
    expect_near({found.outputs}, {expected.outputs});
    EXPECT_NEAR(found.loss, expected.loss, kRounding * std::abs(expected.loss));
    EXPECT_EQ(found.correct, expected.correct);
    expect_near(found.gradients, expected.gradients);
    expect_near(found.sums, expected.sums);
  }
}

/// Loss and gradients of gpt, whose vocabulary fused kernels pad.
std::pair<double, std::vector<at::Tensor>> train_gpt(at::Device device, Kernels kernels) {
  auto model = find_model("gpt").make({.task = "language_modelling", .sample_shape = {16}, .vocabulary = 65},
                                      {{"layers", "2"}, {"heads", "2"}, {"width", "32"}, {"block", "16"}});
  model->to(at::kFloat, device);
  model->initialise(5);
  at::manual_seed(7);
  Tensors flowing = {at::randint(0, 65, {3, 16}, at::kInt)};
  const at::Tensor targets = at::randint(0, 65, {3, 16}, at::kLong);
  const Context context{.mode = Mode::training, .step = 1, .kernels = kernels};
  for (auto& layer : model->layers()) flowing = layer->run(flowing, context);
  const KernelScope scope(kernels);
  const LossSums sums = model->training_loss(flowing, targets, {});
  EXPECT_EQ(sums.loss.device(), device);
  sums.loss.backward();
  std::vector<at::Tensor> gradients;
  for (const Parameter* parameter : model->parameters()) gradients.push_back(here(parameter->value.grad()));
  return {sums.loss.item<double>(), gradients};
}

TEST(FusedOnDevice, GivesWhatTheOperatorsGiveOnTheCpu) {
  const auto [expected, gradients] = train_gpt(at::kCPU, Kernels::own);
  const auto [found, own] = train_gpt(kGuarded, Kernels::fused);
  EXPECT_NEAR(found, expected, kRounding * expected);
  expect_near(own, gradients);
}

INSTANTIATE_TEST_SUITE_P(Models, OnDevice, testing::ValuesIn(model_names()),
                         [](const auto& given) { return given.param; });

}  // namespace
}  // namespace dtrain::models
