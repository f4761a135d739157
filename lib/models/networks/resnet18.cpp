#include "models/networks/resnet18.hpp"

#include <fmt/format.h>

#include "models/layers/average_pool2d.hpp"
#include "models/layers/batch_norm2d.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/layers/residual_block.hpp"
#include "models/losses/losses.hpp"
#include "models/networks/classifier.hpp"
#include "models/networks/image_facts.hpp"
#include "models/options.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kSmallestResNetImage = 8;  // leaves one pixel after three halvings
constexpr int kStages = 4;

using Layers = std::vector<std::unique_ptr<Layer>>;

void add_stem(Layers& layers, std::int64_t channels, std::int64_t width, bool imagenet) {
  const Conv2d::Geometry small{
      .in_channels = channels, .out_channels = width, .kernel = 3, .stride = 1, .padding = 1};
  const Conv2d::Geometry large{
      .in_channels = channels, .out_channels = width, .kernel = 7, .stride = 2, .padding = 3};
  layers.push_back(std::make_unique<Conv2d>(
      "conv1", imagenet ? large : small,
      Conv2d::Style{
          .start = Conv2d::Start::kaiming_fan_out, .bias = Conv2d::Bias::no, .format = kChannelsLast}));
  layers.push_back(std::make_unique<BatchNorm2d>("bn1", width, kernels::Then::relu));
  if (imagenet) layers.push_back(std::make_unique<MaxPool2d>("maxpool", 3, 2, 1));
}

std::unique_ptr<Model> make_resnet18(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("resnet18", options, {"width", "stem"});
  const std::int64_t width = size_option(options, "width", 64);
  const std::string stem = choice_option(options, "stem", {"cifar", "imagenet"});
  require_images("resnet18", facts, kSmallestResNetImage, Classes::needed);
  loss_of(facts, "resnet18", {Loss::cross_entropy});
  Layers layers;
  add_stem(layers, facts.sample_shape[0], width, stem == "imagenet");
  std::int64_t channels = width;
  for (int stage = 1; stage <= kStages; ++stage) {
    const std::int64_t out = width << (stage - 1);
    const std::string name = fmt::format("layer{}.", stage);
    layers.push_back(std::make_unique<ResidualBlock>(name + "0", channels, out, stage == 1 ? 1 : 2));
    layers.push_back(std::make_unique<ResidualBlock>(name + "1", out, out, 1));
    channels = out;
  }
  layers.push_back(std::make_unique<AveragePool2d>("avgpool", 1));
  layers.push_back(std::make_unique<Flatten>("flatten"));
  layers.push_back(std::make_unique<Linear>("fc", channels, facts.classes));
  return std::make_unique<Classifier>("resnet18", std::move(layers), facts.classes);
}

}  // namespace

Registration resnet18() {
  return {"resnet18",
          {.dataset = "cifar10",
           .options = {{"epochs", "5"},
                       {"optimizer", "sgd"},
                       {"learning-rate", "0.1"},
                       {"momentum", "0.9"},
                       {"weight-decay", "5e-4"},
                       {"schedule", "one_cycle"},
                       {"global-batch", "128"},
                       {"augment", "on"}}},
          &make_resnet18};
}

}  // namespace dtrain::models
