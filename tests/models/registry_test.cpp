#include <cmath>
#include <map>

#include "core/error.hpp"
#include "models/layers/linear.hpp"
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

TEST(InitialisationTest, FollowsItsDistribution) {
  for (const auto& registration : registry()) {
    if (registration.recipe.dataset != "mnist" && registration.recipe.dataset != "cifar10") continue;
    const auto model = registration.make(images({3, 32, 32}), {});
    model->initialise(7);
    for (const Parameter* parameter : model->parameters()) {
      const at::Tensor values = parameter->value.detach();
      const double scale = parameter->init.scale;
      const bool uniform = parameter->init.kind == Initialisation::Kind::uniform;
      const bool normal = parameter->init.kind == Initialisation::Kind::normal;
      if (uniform) {
        EXPECT_LE(values.abs().max().item<double>(), scale * (1.0 + 1e-6)) << parameter->name;
      }
      if (!uniform && !normal) {
        const double expected = parameter->init.kind == Initialisation::Kind::one ? 1.0 : 0.0;
        EXPECT_TRUE(at::all(values == expected).item<bool>()) << parameter->name;
      } else if (values.numel() >= 1000) {
        const double deviation = normal ? scale : scale / std::sqrt(3.0);
        EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.1 * scale) << parameter->name;
        EXPECT_NEAR(values.std().item<double>(), deviation, 0.05 * scale) << parameter->name;
      }
    }
  }
}

TEST(InitialisationTest, FirstLayersStartAsTorchsOrTorchvisions) {
  const std::map<std::string, double> expected = {{"mlp", 1.0 / std::sqrt(3.0 * 32 * 32)},
                                                  {"cnn", 1.0 / std::sqrt(3.0 * 5 * 5)},
                                                  {"conv_autoencoder", 1.0 / std::sqrt(3.0 * 4 * 4)},
                                                  {"vgg11", std::sqrt(2.0 / (64.0 * 3 * 3))},
                                                  {"resnet18", std::sqrt(2.0 / (64.0 * 3 * 3))}};
  for (const auto& [name, scale] : expected) {
    const auto model = find_model(name).make(images({3, 32, 32}), {});
    EXPECT_NEAR(model->parameters()[0]->init.scale, scale, 1e-12) << name;
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
