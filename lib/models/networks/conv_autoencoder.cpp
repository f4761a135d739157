#include "models/networks/conv_autoencoder.hpp"

#include <fmt/format.h>

#include "models/layers/activation.hpp"
#include "models/layers/convolution/chwn_conv.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/losses/losses.hpp"
#include "models/networks/image_facts.hpp"
#include "models/options.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

class ConvAutoencoder final : public Model {
 public:
  ConvAutoencoder(std::vector<std::unique_ptr<Layer>> layers, std::size_t code_layer, Loss loss)
      : Model("conv_autoencoder", std::move(layers)), code_layer_(code_layer), loss_(loss) {}
  Goal goal() const override { return Goal::own_input; }
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return regression_sums(loss_, as_nchw(outputs.at(0)), targets);
  }
  std::optional<std::size_t> code_layer() const override { return code_layer_; }

 private:
  std::size_t code_layer_;
  Loss loss_;
};

using Layers = std::vector<std::unique_ptr<Layer>>;

Conv2d::Geometry halving(std::int64_t in, std::int64_t out) {
  return {.in_channels = in, .out_channels = out, .kernel = 4, .stride = 2, .padding = 1};
}

/// encoder.0, .2, .4 and ReLUs between: `sizes` are the image's channels and those after each convolution.
/// In pairs from the image inwards and from the code outwards, first by outputs and second by inputs; the
/// code itself and the image stay whole.
Slicing channel_slicing(std::size_t index, std::size_t count) {
  if (index % 2 == 1) return Slicing::channels_in;
  return index + 1 < count ? Slicing::channels_out : Slicing::none;
}

Conv2d::Style style_of(Slicing slicing, Conv2d::Images images = Conv2d::Images::chwn) {
  return {.format = kChannelsLast, .slicing = slicing, .images = images};
}

void add_encoder(Layers& layers, const std::vector<std::int64_t>& sizes) {
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    layers.push_back(
        std::make_unique<Conv2d>(fmt::format("encoder.{}", 2 * i), halving(sizes[i], sizes[i + 1]),
                                 style_of(channel_slicing(i, sizes.size() - 1),
                                          i == 0 ? Conv2d::Images::made_chwn : Conv2d::Images::chwn)));
    layers.push_back(
        std::make_unique<Activation>(fmt::format("encoder.{}", 2 * i + 1), Function::relu, Overwrite::input));
  }
}

void add_decoder(Layers& layers, const std::vector<std::int64_t>& sizes) {
  const std::size_t count = sizes.size() - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = count - i;
    layers.push_back(std::make_unique<ConvTranspose2d>(fmt::format("decoder.{}", 2 * i),
                                                       halving(sizes[from], sizes[from - 1]),
                                                       style_of(channel_slicing(i, count))));
    layers.push_back(std::make_unique<Activation>(fmt::format("decoder.{}", 2 * i + 1),
                                                  i + 1 < count ? Function::relu : Function::sigmoid,
                                                  Overwrite::input));
  }
}

std::unique_ptr<Model> make_conv_autoencoder(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("conv_autoencoder", options, {"channels"});
  auto sizes = parse_sizes("channels", option_or(options, "channels", "12,24,48"));
  if (sizes.empty() || sizes.size() > 8) {
    throw usage_error(fmt::format("{} convolutions make no autoencoder", sizes.size()),
                      "--model-option channels", "use 1 to 8 sizes, such as 12,24,48");
  }
  const std::int64_t factor = std::int64_t{1} << sizes.size();
  require_images("conv_autoencoder", facts, factor, Classes::not_needed);
  const Loss loss = loss_of(facts, "conv_autoencoder", {Loss::mse, Loss::mae});
  const Shape& sample = facts.sample_shape;
  if (sample[1] % factor != 0 || sample[2] % factor != 0) {
    throw usage_error(fmt::format("images of shape {} do not halve {} times without a remainder",
                                  shape_text(sample), sizes.size()),
                      "--model conv_autoencoder",
                      "give fewer --model-option channels, or use another --dataset");
  }
  sizes.insert(sizes.begin(), sample[0]);
  Layers layers;
  add_encoder(layers, sizes);
  const std::size_t code_layer = layers.size() - 1;
  add_decoder(layers, sizes);
  return std::make_unique<ConvAutoencoder>(std::move(layers), code_layer, loss);
}

}  // namespace

Registration conv_autoencoder() {
  return {"conv_autoencoder", {.dataset = "cifar10"}, &make_conv_autoencoder};
}

}  // namespace dtrain::models
