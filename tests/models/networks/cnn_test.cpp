#include "core/error.hpp"
#include "models/networks/torch_modules.hpp"

namespace dtrain::models {
namespace {

struct TorchCnn : torch::nn::Module {
  TorchCnn()
      : conv1(register_module("conv1", torch::nn::Conv2d(3, 6, 5))),
        conv2(register_module("conv2", torch::nn::Conv2d(6, 16, 5))),
        fc1(register_module("fc1", torch::nn::Linear(400, 120))),
        fc2(register_module("fc2", torch::nn::Linear(120, 84))),
        fc3(register_module("fc3", torch::nn::Linear(84, 10))) {}
  at::Tensor forward(at::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc3(torch::relu(fc2(torch::relu(fc1(x.flatten(1))))));
  }
  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear fc1, fc2, fc3;
};

TEST(CnnTest, HasTheNamesAndNumberOfParametersOfTheContract) {
  const auto model = find_model("cnn").make(images({3, 32, 32}), {});
  EXPECT_EQ(model->parameter_count(), 62006);
  std::vector<std::string> names;
  for (const Parameter* parameter : model->parameters()) names.push_back(parameter->name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                             "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight",
                                             "fc3.bias"}));
}

TEST(CnnTest, OutputsAndGradientsAreThoseOfTorch) {
  at::set_num_threads(1);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto model = find_model("cnn").make(images({3, 32, 32}), {});
    model->to(type, at::kCPU);
    model->initialise(5);
    TorchCnn theirs;
    theirs.to(type);
    copy_into(theirs, *model);
    torch::manual_seed(2);
    const at::Tensor input = at::randn({9, 3, 32, 32}, type);
    const at::Tensor targets = at::randint(10, {9}, at::kLong);
    expect_same(*model, theirs, run(*model, input)[0], theirs.forward(input), targets,
                type == at::kFloat ? 1e-5 : 1e-12);
  }
}

TEST(CnnTest, FollowsTheImagesSizeAndClasses) {
  const auto model = find_model("cnn").make(images({1, 28, 28}, 47), {});
  model->initialise(1);
  EXPECT_EQ(run(*model, at::randn({2, 1, 28, 28}))[0].sizes().vec(), (Shape{2, 47}));
  const auto smallest = find_model("cnn").make(images({1, 16, 16}), {});
  smallest->initialise(1);
  EXPECT_EQ(run(*smallest, at::randn({2, 1, 16, 16}))[0].sizes().vec(), (Shape{2, 10}));
}

TEST(CnnTest, RefusesTablesSmallImagesAndOptions) {
  const auto make = find_model("cnn").make;
  EXPECT_THROW(make({.task = "table_classification", .sample_shape = {13}, .classes = 3}, {}), Error);
  EXPECT_THROW(make(images({3, 15, 15}), {}), Error);
  EXPECT_THROW(make(images({3, 32, 32}, 0), {}), Error);
  EXPECT_THROW(make(images({3, 32, 32}), {{"hidden", "3"}}), Error);
}

}  // namespace
}  // namespace dtrain::models
