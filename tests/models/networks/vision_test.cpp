#include "core/error.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

std::vector<std::string> names_of(Model& model) {
  std::vector<std::string> names;
  for (const Parameter* parameter : model.parameters()) names.push_back(parameter->name);
  return names;
}

TEST(Vgg11Test, HasTheNamesAndNumbersOfParametersOfTheContract) {
  const auto model = find_model("vgg11").make(images({3, 32, 32}), {});
  EXPECT_EQ(model->parameter_count(), 28149514);
  const auto names = names_of(*model);
  EXPECT_EQ(names.size(), 8U * 4U + 6U);
  EXPECT_THAT(names,
              testing::IsSupersetOf({"features.0.weight", "features.0.bias", "features.1.weight",
                                     "features.4.weight", "features.25.bias", "features.26.bias",
                                     "classifier.0.weight", "classifier.3.bias", "classifier.6.bias"}));
  EXPECT_EQ(model->buffers().size(), 8U * 3U);
  EXPECT_EQ(model->buffers().back()->name, "features.26.num_batches_tracked");
  const auto large = find_model("vgg11").make(images({3, 224, 224}, 1000), {{"head", "imagenet"}});
  EXPECT_EQ(large->parameter_count(), 132868840);
}

TEST(ResNet18Test, HasTheNamesAndNumbersOfParametersOfTheContract) {
  const auto model = find_model("resnet18").make(images({3, 32, 32}), {});
  EXPECT_EQ(model->parameter_count(), 11173962);
  EXPECT_THAT(names_of(*model),
              testing::IsSupersetOf({"conv1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer1.1.bn2.bias",
                                     "layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias",
                                     "layer4.1.conv2.weight", "fc.weight", "fc.bias"}));
  EXPECT_EQ(model->buffers().size(), 20U * 3U);
  const auto large = find_model("resnet18").make(images({3, 224, 224}, 1000), {{"stem", "imagenet"}});
  EXPECT_EQ(large->parameter_count(), 11689512);  // torchvision's
}

TEST(ConvAutoencoderTest, HasTheNamesAndNumbersOfParametersOfTheContract) {
  const auto model = find_model("conv_autoencoder").make(images({3, 32, 32}), {});
  EXPECT_EQ(model->parameter_count(), 47355);
  EXPECT_EQ(
      names_of(*model),
      (std::vector<std::string>{"encoder.0.weight", "encoder.0.bias", "encoder.2.weight", "encoder.2.bias",
                                "encoder.4.weight", "encoder.4.bias", "decoder.0.weight", "decoder.0.bias",
                                "decoder.2.weight", "decoder.2.bias", "decoder.4.weight", "decoder.4.bias"}));
  EXPECT_EQ(model->goal(), Goal::own_input);
  model->initialise(1);
  const at::Tensor images = at::rand({2, 3, 32, 32});
  const at::Tensor out = run(*model, images)[0];
  EXPECT_EQ(out.sizes(), images.sizes());
  EXPECT_NEAR(model->loss({out}, images).loss.item<double>(), 2.0 * at::mse_loss(out, images).item<double>(),
              1e-6);
}

TEST(VisionTest, ImagesThatDoNotFitAndUnknownOptionsAreRefused) {
  const auto refuses = [](const char* model, const DatasetFacts& facts, const ModelOptions& options) {
    try {
      find_model(model).make(facts, options);
      ADD_FAILURE() << model << " was made";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    }
  };
  const DatasetFacts table{.task = "table_classification", .sample_shape = {13}, .classes = 3};
  for (const char* model : {"vgg11", "resnet18", "conv_autoencoder"}) {
    refuses(model, table, {});
    refuses(model, images({3, 32, 32}), {{"depth", "3"}});
    refuses(model, images({3, 4, 4}), {});
  }
  refuses("vgg11", images({3, 28, 28}), {});
  refuses("vgg11", images({3, 32, 32}), {{"head", "cifar100"}});
  refuses("vgg11", images({3, 32, 32}), {{"width", "8,16"}});
  refuses("resnet18", images({3, 32, 32}), {{"stem", "large"}});
  refuses("resnet18", images({3, 32, 32}), {{"width", "0"}});
  refuses("conv_autoencoder", images({3, 36, 36}), {});
  refuses("conv_autoencoder", images({3, 32, 32}), {{"channels", ""}});
}

TEST(ConvTranspose2dTest, IsTorchs) {
  ConvTranspose2d layer("up", {.in_channels = 5, .out_channels = 3, .kernel = 4, .stride = 2, .padding = 1});
  for (auto& parameter : layer.parameters()) parameter.value.data().normal_();
  const at::Tensor input = at::randn({2, 5, 6, 7});
  const at::Tensor out = layer.forward({input}, {})[0];
  const auto& p = layer.parameters();
  EXPECT_TRUE(at::allclose(out, at::conv_transpose2d(input, p[0].value, p[1].value, 2, 1), 1e-5, 1e-5));
  EXPECT_EQ(layer.output_shapes({input.sizes().vec()})[0], out.sizes().vec());
  EXPECT_THROW(layer.forward({at::randn({2, 4, 6, 7})}, {}), Error);
}

}  // namespace
}  // namespace dtrain::models
