#include "models/networks/cnn.hpp"

#include <fmt/format.h>

#include "models/layers/activation.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/losses/losses.hpp"
#include "models/networks/classifier.hpp"
#include "models/options.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kKernel = 5;
constexpr std::int64_t kPool = 2;
constexpr std::int64_t kSmallestCnnImage = 16;  // leaves one pixel after both convolutions and pools

std::int64_t extent_after_stage(std::int64_t extent) { return (extent - kKernel + 1) / kPool; }

/// ReLU does not change which element of a window is largest, so it comes after the pool, on a quarter of
/// them.
void add_stage(std::vector<std::unique_ptr<Layer>>& layers, const std::string& number, std::int64_t in,
               std::int64_t out, Slicing slicing, Conv2d::Images images) {
  layers.push_back(std::make_unique<Conv2d>(
      "conv" + number, Conv2d::Geometry{.in_channels = in, .out_channels = out, .kernel = kKernel},
      Conv2d::Style{.slicing = slicing, .images = images}));
  layers.push_back(std::make_unique<MaxPool2d>("pool" + number, kPool));
  layers.push_back(
      std::make_unique<Activation>("conv" + number + "_activation", Function::relu, Overwrite::input));
}

std::unique_ptr<Model> make_cnn(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("cnn", options, {});
  const Shape& sample = facts.sample_shape;
  if (sample.size() != 3 || sample[1] < kSmallestCnnImage || sample[2] < kSmallestCnnImage ||
      facts.classes < 1) {
    throw usage_error(
        fmt::format("the model cnn takes images [C, H, W] of at least {} x {} with classes, not samples of "
                    "shape {} with {} classes",
                    kSmallestCnnImage, kSmallestCnnImage, shape_text(sample), facts.classes),
        "--model cnn", "use --model mlp or another --dataset");
  }
  loss_of(facts, "cnn", {Loss::cross_entropy});
  std::vector<std::unique_ptr<Layer>> layers;
  add_stage(layers, "1", sample[0], 6, Slicing::channels_out, Conv2d::Images::made_chwn);
  add_stage(layers, "2", 6, 16, Slicing::channels_in, Conv2d::Images::chwn);
  layers.push_back(std::make_unique<Flatten>("flatten"));
  const std::int64_t height = extent_after_stage(extent_after_stage(sample[1]));
  const std::int64_t width = extent_after_stage(extent_after_stage(sample[2]));
  layers.push_back(std::make_unique<Linear>("fc1", 16 * height * width, 120, Slicing::column));
  layers.push_back(std::make_unique<Activation>("fc1_activation", Function::relu, Overwrite::input));
  layers.push_back(std::make_unique<Linear>("fc2", 120, 84, Slicing::row));
  layers.push_back(std::make_unique<Activation>("fc2_activation", Function::relu, Overwrite::input));
  layers.push_back(std::make_unique<Linear>("fc3", 84, facts.classes));
  return std::make_unique<Classifier>("cnn", std::move(layers), facts.classes);
}

}  // namespace

Registration cnn() {
  return {"cnn",
          {.dataset = "cifar10",
           .options = {{"epochs", "20"},
                       {"optimizer", "sgd"},
                       {"learning-rate", "0.01"},
                       {"momentum", "0.9"},
                       {"weight-decay", "5e-4"},
                       {"schedule", "one_cycle"},
                       {"augment", "on"}}},
          &make_cnn};
}

}  // namespace dtrain::models
