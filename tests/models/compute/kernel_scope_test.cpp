// Layers by LibTorch's operators alone give what they give by dtrain's own kernels.
#include "models/compute/kernel_scope.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include "models/layers/batch_norm2d.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/embedding_bag.hpp"
#include "models/layers/linear.hpp"
#include "models/layers/lstm.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

/// What one pass of a layer gives, and which kind of node of the graph made it.
struct Passed {
  std::string node;
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

Passed pass(Model& model, const at::Tensor& values, Kernels kernels) {
  const bool ids = !values.is_floating_point();
  const at::Tensor input = ids ? values : values.detach().clone().set_requires_grad(true);
  const Context context{.mode = Mode::training, .seed = 3, .step = 2, .kernels = kernels};
  const at::Tensor output = model.layers().front()->run({input}, context).at(0);
  Passed passed{.node = output.grad_fn()->name(), .output = output.detach(), .gradients = {}};
  (output * at::arange(output.numel(), output.options()).view_as(output).cos()).sum().backward();
  if (!ids) passed.gradients.push_back(input.grad());
  for (Parameter* parameter : model.parameters()) {
    passed.gradients.push_back(parameter->value.grad().clone());
    parameter->value.mutable_grad().reset();
  }
  return passed;
}

void expect_near(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_TRUE(found.sizes() == expected.sizes());
  EXPECT_LT((found - expected).abs().max().item<double>(), 1e-10 * (1 + expected.abs().max().item<double>()));
}

void expect_both_alike(std::unique_ptr<Layer> layer, const at::Tensor& input) {
  const std::string name = layer->name();
  SCOPED_TRACE(name);
  const auto model = model_of(std::move(layer), at::kDouble);
  const auto own = pass(*model, input, Kernels::own);
  const auto library = pass(*model, input, Kernels::libtorch);
  EXPECT_NE(own.node.find("CppNode"), std::string::npos) << own.node;
  EXPECT_EQ(library.node.find("CppNode"), std::string::npos) << library.node;
  expect_near(own.output, library.output);
  for (std::size_t i = 0; i < own.gradients.size(); ++i) expect_near(own.gradients[i], library.gradients[i]);
}

at::Tensor doubles(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

TEST(KernelScope, LayersGiveTheSameByLibTorchAlone) {
  at::manual_seed(5);
  at::set_num_threads(1);
  const Conv2d::Style last{.format = kLast};
  const Conv2d::Geometry wide{.in_channels = 32, .out_channels = 64, .kernel = 3, .padding = 1};
  const Conv2d::Geometry few{.in_channels = 3, .out_channels = 12, .kernel = 4, .stride = 2, .padding = 1};
  const Conv2d::Geometry back{.in_channels = 12, .out_channels = 3, .kernel = 4, .stride = 2, .padding = 1};
  expect_both_alike(std::make_unique<Linear>("small", 20, 30), doubles({7, 20}));
  expect_both_alike(std::make_unique<Conv2d>("winograd", wide, last), doubles({2, 32, 7, 6}));
  expect_both_alike(std::make_unique<Conv2d>("patches", few, last), doubles({3, 3, 8, 6}));
  expect_both_alike(std::make_unique<ConvTranspose2d>("patches_back", back, Conv2d::Style{.format = kLast}),
                    doubles({3, 12, 4, 5}));
  expect_both_alike(std::make_unique<MaxPool2d>("pool", 2), doubles({3, 4, 6, 7}));
  expect_both_alike(std::make_unique<BatchNorm2d>("norm", 5, kernels::Then::nothing), doubles({3, 5, 4, 4}));
  expect_both_alike(std::make_unique<Dropout>("dropout", 0.3), doubles({4, 50}));
  const auto ids = at::randint(1, 11, {6, 9}, at::kInt);
  ids.select(0, 2).narrow(0, 4, 5).zero_();  // padding
  expect_both_alike(std::make_unique<EmbeddingBag>("bag", 11, 7, 8), ids);
}

TEST(KernelScope, SequencesGiveTheSameByLibTorchAlone) {
  at::manual_seed(6);
  const std::vector<std::int64_t> sizes = {3, 3, 1};
  const auto result = [&](Kernels kernels, const std::vector<at::Tensor>& values) {
    const KernelScope scope(kernels);
    const auto passed =
        lstm(values[0], sizes, {values[1], values[2]}, {values[3], values[4], values[5], values[6]});
    return at::cat({passed.outputs.view({-1}), passed.last.hidden.view({-1}), passed.last.cell.view({-1})});
  };
  const std::vector<at::Tensor> values = {doubles({7, 4}),  doubles({3, 5}),  doubles({3, 5}),
                                          doubles({20, 4}), doubles({20, 5}), doubles({20}),
                                          doubles({20})};
  expect_near(result(Kernels::own, values), result(Kernels::libtorch, values));
}

TEST(KernelScope, EndsWithItsBlock) {
  {
    const KernelScope scope(Kernels::libtorch);
    EXPECT_FALSE(own_kernels_are_on());
  }
  EXPECT_TRUE(own_kernels_are_on());
}

}  // namespace
}  // namespace dtrain::models
