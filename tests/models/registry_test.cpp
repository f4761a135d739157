#include <cmath>

#include "core/error.hpp"
#include "models/linear.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

TEST(RegistryTest, AnUnknownModelIsRefusedWithTheListOfModels) {
  try {
    find_model("mpl");
    FAIL() << "mpl was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("mpl"), testing::HasSubstr("mlp, cnn")));
  }
}

TEST(RegistryTest, RecipesAreThoseOfTheDesign) {
  const Recipe& mlp = find_model("mlp").recipe;
  EXPECT_EQ(mlp.dataset, "mnist");
  EXPECT_EQ(mlp.epochs, 10);
  EXPECT_EQ(mlp.optimizer, "adam");
  EXPECT_EQ(mlp.learning_rate, 1e-3);
  EXPECT_EQ(mlp.schedule, "constant");
  EXPECT_EQ(mlp.global_batch, 64);
  const Recipe& cnn = find_model("cnn").recipe;
  EXPECT_EQ(cnn.epochs, 20);
  EXPECT_EQ(cnn.optimizer, "sgd");
  EXPECT_EQ(cnn.momentum, 0.9);
  EXPECT_EQ(cnn.learning_rate, 0.01);
  EXPECT_EQ(cnn.weight_decay, 5e-4);
  EXPECT_EQ(cnn.schedule, "one_cycle");
}

TEST(InitialisationTest, FollowsSeedAndNameWithinTorchsBounds) {
  for (const auto& registration : registry()) {
    if (registration.recipe.dataset != "mnist" && registration.recipe.dataset != "cifar10") continue;
    const auto model = registration.make(images({3, 32, 32}), {});
    model->initialise(7);
    for (const Parameter* parameter : model->parameters()) {
      const at::Tensor values = parameter->value.detach();
      const double bound = parameter->init.scale;
      EXPECT_LE(values.abs().max().item<double>(), bound * (1.0 + 1e-6)) << parameter->name;
      if (values.numel() < 1000) continue;
      EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.1 * bound) << parameter->name;
      EXPECT_NEAR(values.std().item<double>(), bound / std::sqrt(3.0), 0.05 * bound) << parameter->name;
    }
    const auto& weight = model->parameters()[0]->value;
    const double fan_in = static_cast<double>(weight[0].numel());
    EXPECT_NEAR(model->parameters()[0]->init.scale, 1.0 / std::sqrt(fan_in), 1e-12);
  }
}

TEST(InitialisationTest, DoublesStartAsTheFloatsAndSeedsDiffer) {
  const auto floats = find_model("mlp").make(images({1, 28, 28}), {});
  floats->initialise(7);
  const auto doubles = find_model("mlp").make(images({1, 28, 28}), {});
  doubles->to(at::kDouble, at::kCPU);
  doubles->initialise(7);
  const auto other = find_model("mlp").make(images({1, 28, 28}), {});
  other->initialise(8);
  for (std::size_t i = 0; i < floats->parameters().size(); ++i) {
    const at::Tensor value = floats->parameters()[i]->value;
    EXPECT_TRUE(at::equal(value.to(at::kDouble), doubles->parameters()[i]->value));
    EXPECT_TRUE(doubles->parameters()[i]->value.requires_grad());
    EXPECT_FALSE(at::equal(value, other->parameters()[i]->value));
  }
}

TEST(InitialisationTest, TwoParametersOfOneNameAreRefused) {
  class Twin final : public Model {
   public:
    using Model::Model;
    LossSums loss(const Tensors&, const at::Tensor&) const override { return {}; }
  };
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Linear>("fc", 2, 3));
  layers.push_back(std::make_unique<Linear>("fc", 3, 2));
  EXPECT_THROW(Twin("twin", std::move(layers)), Error);
}

}  // namespace
}  // namespace dtrain::models
