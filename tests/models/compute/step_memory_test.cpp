#include "models/compute/step_memory.hpp"

#include <functional>

#include "models/compute/gradient_place.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/linear.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
const std::vector<std::int64_t> kRagged = {3, 1, 2};  // samples of each micro-batch

std::unique_ptr<Model> large_linear_model(at::ScalarType type) {
  return model_of(std::make_unique<Linear>("fc", 800, 700), type);  // too large for small_linear
}

std::unique_ptr<Model> conv_model(at::ScalarType type) {
  return model_of(
      std::make_unique<Conv2d>(
          "conv",
          Conv2d::Geometry{.in_channels = 64, .out_channels = 64, .kernel = 3, .stride = 1, .padding = 1},
          Conv2d::Style{.bias = Conv2d::Bias::yes, .format = kLast}),
      type);
}

/// Forward and back of all micro-batches in turn, each with its part of `inputs` and `gradients`. Returns the
/// gradients of the inputs.
at::Tensor step(Model& model, const at::Tensor& inputs, const at::Tensor& gradients,
                const std::function<void(std::size_t)>& after_each = {}) {
  std::vector<at::Tensor> found;
  std::int64_t first = 0;
  for (std::size_t m = 0; m < kRagged.size(); ++m) {
    const at::Tensor x = inputs.narrow(0, first, kRagged[m]).detach().requires_grad_();
    const at::Tensor y = model.layers()[0]->forward({x}, {})[0];
    y.backward(gradients.narrow(0, first, kRagged[m]));
    found.push_back(x.grad());
    first += kRagged[m];
    if (after_each) after_each(m);
  }
  return at::cat(found);
}

struct Kind {
  const char* name;
  std::unique_ptr<Model> (*make)(at::ScalarType);
  Shape input, output;
};
const std::vector<Kind> kKinds = {{"linear", large_linear_model, {6, 800}, {6, 700}},
                                  {"convolution", conv_model, {6, 64, 4, 3}, {6, 64, 4, 3}}};

TEST(StepMemoryTest, TheGradientHeldBackIsTheSumOverMicroBatches) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const double tolerance = type == at::kDouble ? 1e-12 : 2e-5;
    for (const Kind& kind : kKinds) {
      SCOPED_TRACE(kind.name);
      at::manual_seed(1);
      const at::Tensor x = at::randn(kind.input, type);
      const at::Tensor dy = at::randn(kind.output, type);
      const auto each_time = kind.make(type);
      const at::Tensor expected = step(*each_time, x, dy);
      const auto held_back = kind.make(type);
      Parameter& weight = held_back->layers()[0]->parameters()[0];
      GradientPlace place(weight);
      place.begin_step(static_cast<int>(kRagged.size()));
      const at::Tensor slot = at::empty_like(weight.value.detach());
      place.offer(slot.alias());
      const at::Tensor found = step(*held_back, x, dy, [&](std::size_t m) {
        const bool last = m + 1 == kRagged.size();
        EXPECT_EQ(weight.value.grad().defined(), last) << "after micro-batch " << m;
        EXPECT_EQ(place.step_memory()->incomplete(), !last);
      });
      EXPECT_EQ(place.step_memory()->summed(), 3);
      EXPECT_EQ(weight.value.grad().data_ptr(), slot.data_ptr());
      const auto expect_close = [&](const at::Tensor& a, const at::Tensor& b) {
        EXPECT_LE((a - b).abs().max().item<double>(), tolerance * (1.0 + b.abs().max().item<double>()));
      };
      expect_close(found, expected);
      const auto parameters = each_time->layers()[0]->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        expect_close(held_back->layers()[0]->parameters()[i].value.grad(), parameters[i].value.grad());
      }
    }
  }
}

TEST(StepMemoryTest, NothingIsHeldBackThatWouldTakeMoreThanTheWeight) {
  StepMemory memory(3);
  EXPECT_FALSE(memory.holds_back(101, 300));
  EXPECT_FALSE(memory.holds_back(1, 300)) << "decided once for the step";
  EXPECT_TRUE(StepMemory(3).holds_back(100, 300));
  EXPECT_FALSE(StepMemory(3).holds_back(100, 300, StepMemory::Otherwise::faster));
  EXPECT_EQ(memory.summed(), 1);
  EXPECT_FALSE(memory.incomplete());
}

TEST(StepMemoryTest, MicroBatchesEitherSideOfAKernelsLimitGoOneWay) {
  at::set_num_threads(1);
  at::manual_seed(1);
  const at::Tensor x = at::randn({167, 784}, at::kDouble);
  const at::Tensor dy = at::randn({167, 250}, at::kDouble);
  const auto model = model_of(std::make_unique<Linear>("fc", 784, 250), at::kDouble);
  Parameter& weight = model->layers()[0]->parameters()[0];
  GradientPlace place(weight);
  for (const std::int64_t rows : {83, 84}) {  // small_linear takes 83 rows of 784, not 84
    SCOPED_TRACE(rows);
    place.begin_step(2);
    weight.value.mutable_grad().reset();
    for (const Range part : {Range{0, rows}, Range{rows, 167}}) {
      const at::Tensor y = model->layers()[0]->forward({x.narrow(0, part.begin, part.size())}, {})[0];
      y.backward(dy.narrow(0, part.begin, part.size()));
    }
    EXPECT_FALSE(place.step_memory()->incomplete());
    ASSERT_TRUE(weight.value.grad().defined());
    EXPECT_LE((weight.value.grad() - dy.t().mm(x)).abs().max().item<double>(), 1e-11);
  }
}

TEST(StepMemoryTest, AConvolutionTransformsItsWeightOncePerStep) {
  const auto model = conv_model(at::kFloat);
  Parameter& weight = model->layers()[0]->parameters()[0];
  const at::Tensor x = at::randn({1, 64, 4, 3});
  const auto forward = [&] { return model->layers()[0]->forward({x}, {})[0].detach().clone(); };
  const at::Tensor before = forward();
  const auto double_values = [&] {
    const at::NoGradGuard no_grad;
    weight.value.mul_(2);
  };
  GradientPlace place(weight);
  place.begin_step(2);
  forward();
  double_values();  // no caller does it within a step
  EXPECT_TRUE(at::equal(forward(), before)) << "made anew";
  place.end_step();
  EXPECT_FALSE(at::equal(forward(), before)) << "kept beyond the step";
}

}  // namespace
}  // namespace dtrain::models
