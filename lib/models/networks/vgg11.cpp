#include "models/networks/vgg11.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "models/layers/activation.hpp"
#include "models/layers/average_pool2d.hpp"
#include "models/layers/batch_norm2d.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/losses/losses.hpp"
#include "models/networks/classifier.hpp"
#include "models/networks/image_facts.hpp"
#include "models/options.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kSmallestVggImage = 32;  // leaves one pixel after five pools

/// Channels of each convolution over the width; 0 is a pool.
constexpr std::array<std::int64_t, 13> kFeatures = {1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0};

using Layers = std::vector<std::unique_ptr<Layer>>;

/// features.0 ... features.28: in torchvision's count a convolution, its BatchNorm and its ReLU are three.
std::int64_t add_features(Layers& layers, std::int64_t channels, std::int64_t width) {
  int index = 0;
  bool first_of_pair = true;  // the tensor axis cuts convolutions in pairs
  const auto name = [](int i) { return fmt::format("features.{}", i); };
  for (const std::int64_t times : kFeatures) {
    if (times == 0) {
      layers.push_back(std::make_unique<MaxPool2d>(name(index++), 2));
      continue;
    }
    const Conv2d::Geometry geometry{
        .in_channels = channels, .out_channels = times * width, .kernel = 3, .stride = 1, .padding = 1};
    layers.push_back(std::make_unique<Conv2d>(
        name(index), geometry,
        Conv2d::Style{.start = Conv2d::Start::kaiming_fan_out,
                      .format = kChannelsLast,
                      .slicing = first_of_pair ? Slicing::channels_out : Slicing::channels_in}));
    layers.push_back(std::make_unique<BatchNorm2d>(name(index + 1), geometry.out_channels,
                                                   kernels::Then::relu,
                                                   first_of_pair ? Slicing::channels_out : Slicing::none));
    index += 3;
    first_of_pair = !first_of_pair;
    channels = geometry.out_channels;
  }
  return channels;
}

void add_classifier(Layers& layers, std::int64_t features, std::int64_t hidden, double dropout,
                    std::int64_t classes) {
  const auto add_hidden = [&](int index, std::int64_t in, Slicing slicing) {
    layers.push_back(std::make_unique<Linear>(fmt::format("classifier.{}", index), in, hidden, slicing));
    layers.push_back(std::make_unique<Activation>(fmt::format("classifier.{}", index + 1), Function::relu,
                                                  Overwrite::input));
    layers.push_back(std::make_unique<Dropout>(fmt::format("classifier.{}", index + 2), dropout));
  };
  add_hidden(0, features, Slicing::column);
  add_hidden(3, hidden, Slicing::row);
  layers.push_back(std::make_unique<Linear>("classifier.6", hidden, classes));
}

std::unique_ptr<Model> make_vgg11(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("vgg11", options, {"width", "hidden", "dropout", "head"});
  const std::int64_t width = size_option(options, "width", 64);
  const std::int64_t hidden = size_option(options, "hidden", 4096);
  const double dropout = probability_option(options, "dropout", 0.5);
  const std::int64_t pixels = choice_option(options, "head", {"cifar", "imagenet"}) == "cifar" ? 1 : 7;
  require_images("vgg11", facts, kSmallestVggImage, Classes::needed);
  loss_of(facts, "vgg11", {Loss::cross_entropy});
  Layers layers;
  const std::int64_t channels = add_features(layers, facts.sample_shape[0], width);
  layers.push_back(std::make_unique<AveragePool2d>("avgpool", pixels));
  layers.push_back(std::make_unique<Flatten>("flatten"));
  add_classifier(layers, channels * pixels * pixels, hidden, dropout, facts.classes);
  return std::make_unique<Classifier>("vgg11", std::move(layers), facts.classes);
}

}  // namespace

Registration vgg11() {
  return {"vgg11",
          {.dataset = "cifar10",
           .options = {{"epochs", "3"},
                       {"optimizer", "sgd"},
                       {"learning-rate", "0.05"},
                       {"momentum", "0.9"},
                       {"weight-decay", "5e-4"},
                       {"schedule", "one_cycle"},
                       {"global-batch", "128"},
                       {"augment", "on"}}},
          &make_vgg11};
}

}  // namespace dtrain::models
