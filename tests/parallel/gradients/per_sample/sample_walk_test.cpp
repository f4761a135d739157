#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/compute/sample_tap.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/plugins/additions.hpp"
#include "parallel/gradients/per_sample/sample_walk.hpp"
#include "parallel/plain_sum.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

/// [n, T, F] -> [n, F], the mean over T.
class MeanOverRows final : public models::Layer {
 public:
  MeanOverRows() : Layer("mean") {}
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override {
    return {at::mean(inputs.at(0), 1)};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return {{inputs[0][0], inputs[0][2]}};
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {}; }
};

/// [n, T, F] or [n, F, H, W] -> [n, F], the variance over rows or positions: no row has a gradient but for
/// what it differs from the others.
class VarianceOverRows final : public models::Layer {
 public:
  VarianceOverRows() : Layer("variance") {}
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override {
    const auto& input = inputs.at(0);
    const auto rows = input.dim() == 4 ? input.flatten(2).transpose(1, 2) : input;
    return {at::mean(at::square(rows - at::mean(rows, 1, true)), 1)};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return {{inputs[0][0], inputs[0].size() == 4 ? inputs[0][1] : inputs[0][2]}};
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {}; }
};

/// A linear layer as those of exported programs.
class TappedRows final : public models::Layer, public models::SampleTapped {
 public:
  explicit TappedRows(std::int64_t width) : Layer("rows") {
    parameters_.push_back({"rows.weight",
                           at::empty({width, width}).requires_grad_(),
                           {models::Initialisation::Kind::uniform, 1.0}});
  }
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override {
    return {models::tapped_linear(inputs.at(0), parameters_[0].value, {})};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return inputs;
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {}; }
};

/// As those of exported programs that stand before the first parameter.
class TappedFlatten final : public models::Layer, public models::SampleTapped {
 public:
  TappedFlatten() : Layer("front") {}
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override {
    return {inputs.at(0).flatten(1)};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return {{inputs[0][0], inputs[0][1] * inputs[0][2]}};
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {}; }
};

std::unique_ptr<models::Model> registered(const std::string& name, const models::DatasetFacts& facts,
                                          const models::ModelOptions& options = {}) {
  auto model = models::find_model(name).make(facts, options);
  model->initialise(5);
  return model;
}

std::unique_ptr<models::Model> rows_model(std::int64_t width) {
  Layers layers;
  layers.push_back(std::make_unique<models::Linear>("one", 6, width));
  layers.push_back(
      std::make_unique<models::Activation>("tanh", models::Function::tanh, models::Overwrite::input));
  layers.push_back(std::make_unique<models::Linear>("two", width, 4));
  layers.push_back(std::make_unique<MeanOverRows>());
  return classifier_of(std::move(layers), 4);
}

std::unique_ptr<models::Model> odd_convolutions() {
  Layers layers;
  layers.push_back(std::make_unique<models::Conv2d>(
      "one",
      models::Conv2d::Geometry{.in_channels = 2, .out_channels = 5, .kernel = 3, .stride = 2, .padding = 1},
      models::Conv2d::Style{.bias = models::Conv2d::Bias::no, .format = models::kChannelsLast}));
  layers.push_back(
      std::make_unique<models::Activation>("relu", models::Function::relu, models::Overwrite::input));
  layers.push_back(std::make_unique<models::Conv2d>(
      "two",
      models::Conv2d::Geometry{.in_channels = 5, .out_channels = 3, .kernel = 2, .stride = 1, .padding = 0}));
  layers.push_back(std::make_unique<models::Flatten>("flatten"));
  layers.push_back(std::make_unique<models::Linear>("three", 3 * 3 * 4, 3));
  return classifier_of(std::move(layers), 3);
}

void expect_rules_agree(std::unique_ptr<models::Model> model, const Samples& samples, int threads = 1) {
  at::set_num_threads(threads);
  FlatParameters parameters(*model, at::kFloat);
  ASSERT_EQ(SampleWalk::obstacle(*model), std::nullopt);
  const auto norms = plain_sum(*model, parameters, samples, 1);
  const double between = std::sqrt(norms.least * norms.most);
  for (const double clip : {norms.most * 2, between, norms.least / 2}) {
    const auto expected = plain_sum(*model, parameters, samples, clip).sum;
    SampleWalk walk(*model);
    ClippedSum sum(parameters, clip);
    for (int again = 0; again < 2; ++again) {
      sum.begin_step();
      const auto loss = walk.add(samples, {}, {}, sum);
      EXPECT_NEAR(loss.loss.item<double>(), run_through(*model, samples, {}).loss.item<double>(), 1e-4);
      const double wrong = (sum.values() - expected).abs().max().item<double>();
      EXPECT_LT(wrong, 1e-5 * std::max(1.0, expected.abs().max().item<double>()))
          << model->name() << " clip " << clip;
    }
    EXPECT_EQ(sum.not_finite(), 0);
  }
}

TEST(SampleWalkTest, LinearLayersAgreeWithAPassForEachSample) {
  expect_rules_agree(small_model(), {{waves({7, 12})}, at::remainder(at::arange(7, at::kLong), 3)});
}

TEST(SampleWalkTest, NothingOfOneMicroBatchIsLeftForTheNext) {
  Layers layers;
  layers.push_back(std::make_unique<TappedFlatten>());
  layers.push_back(std::make_unique<models::Linear>("one", 6, 4));
  const auto model = classifier_of(std::move(layers), 4);
  FlatParameters parameters(*model, at::kFloat);
  ASSERT_EQ(SampleWalk::obstacle(*model), std::nullopt);
  SampleWalk walk(*model);
  for (const std::int64_t n : {5, 5, 3, 7}) {  // each time other samples
    const Samples samples = {{waves({n, 2, 3}) * static_cast<double>(n) + 0.1 * static_cast<double>(n)},
                             at::remainder(at::arange(n, at::kLong), 4)};
    const auto expected = plain_sum(*model, parameters, samples, 0.5).sum;
    ClippedSum sum(parameters, 0.5);
    sum.begin_step();
    walk.add(samples, {}, {}, sum);
    EXPECT_LT((sum.values() - expected).abs().max().item<double>(), 1e-5) << n;
    parameters.values().add_(0.01);
  }
}

TEST(SampleWalkTest, LinearLayersOfSeveralRowsAgree) {
  for (const std::int64_t width : {3, 40})  // by products, and by pairs of rows
    expect_rules_agree(rows_model(width), {{waves({5, 4, 6})}, at::remainder(at::arange(5, at::kLong), 4)});
}

/// Inputs that are large and nearly alike: of what the rows of a sample give nearly all cancels.
void expect_no_sample_above_the_clip(std::unique_ptr<models::Layer> first, const models::Shape& shape) {
  constexpr double kClip = 1;
  constexpr std::int64_t kWidth = 64;
  Layers layers;
  layers.push_back(std::move(first));
  layers.push_back(std::make_unique<VarianceOverRows>());
  layers.push_back(std::make_unique<models::Linear>("last", kWidth, 2));
  const auto model = classifier_of(std::move(layers), 2);
  FlatParameters parameters(*model, at::kFloat);
  ASSERT_EQ(SampleWalk::obstacle(*model), std::nullopt);
  SampleWalk walk(*model);
  ClippedSum sum(parameters, kClip);
  const Samples samples = {{waves(shape) * 0.5 + 20000}, at::remainder(at::arange(shape[0], at::kLong), 2)};
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    sum.begin_step();
    walk.add(one_of(samples, i), {}, {}, sum);
    EXPECT_LE(sum.values().norm().item<double>(), kClip) << i;
    EXPECT_EQ(sum.not_finite(), 0) << i;
  }
}

TEST(SampleWalkTest, RowsThatCancelAreClippedToo) {
  for (const std::int64_t rows : {4, 12, 50}) {  // by pairs of rows, or by the gradient
    SCOPED_TRACE(rows);
    expect_no_sample_above_the_clip(std::make_unique<models::Linear>("rows", 64, 64), {16, rows, 64});
    expect_no_sample_above_the_clip(std::make_unique<TappedRows>(64), {16, rows, 64});
  }
  for (const std::int64_t extent : {3, 12}) {
    SCOPED_TRACE(extent);
    expect_no_sample_above_the_clip(
        std::make_unique<models::Conv2d>(
            "image",
            models::Conv2d::Geometry{
                .in_channels = 64, .out_channels = 64, .kernel = 2, .stride = 1, .padding = 0}),
        {16, 64, extent, extent});
  }
}

/// A sample whose rows cancel to nothing, among others: what rounding adds to the sum of all is bounded too.
TEST(SampleWalkTest, ARoundingIsNoWayAroundTheClip) {
  Layers layers;
  layers.push_back(std::make_unique<models::Linear>("rows", 4, 4));
  layers.push_back(std::make_unique<MeanOverRows>());
  const auto model = classifier_of(std::move(layers), 4);
  FlatParameters parameters(*model, at::kFloat);
  SampleWalk walk(*model);
  ClippedSum sum(parameters, 1);
  auto inputs = waves({2, 2, 4});
  const Samples small = {{inputs.clone()}, at::tensor({0, 1}, at::kLong)};
  sum.begin_step();
  walk.add(small, {}, {}, sum);
  const auto without = sum.values().clone();
  inputs[1][0].fill_(3e9);
  inputs[1][1] = -inputs[1][0];
  sum.begin_step();
  walk.add({{inputs}, small.targets}, {}, {}, sum);
  EXPECT_LE((sum.values() - without).norm().item<double>(), 2 + 1e-6);  // one sample was replaced
}

TEST(ClippedSumTest, ASquareThatIsNoSquareLeavesItsSampleOut) {
  const auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  ClippedSum sum(parameters, 1);
  const auto factors = sum.factors(
      at::tensor({4.0, -1e-3, 0.25, std::nan(""), std::numeric_limits<double>::infinity()}, at::kDouble));
  EXPECT_NEAR(factors[0].item<double>(), 0.5, 1e-6);
  EXPECT_LE(factors[0].item<double>(), 0.5);
  EXPECT_EQ(factors[1].item<double>(), 0);
  EXPECT_EQ(factors[2].item<double>(), 1);
  EXPECT_EQ(factors[3].item<double>(), 0);
  EXPECT_EQ(factors[4].item<double>(), 0);
  EXPECT_EQ(sum.not_finite(), 3);
}

TEST(SampleWalkTest, ConvolutionsAgree) {
  expect_rules_agree(
      registered("cnn", {.task = "image_classification", .sample_shape = {3, 20, 18}, .classes = 4}),
      {{waves({5, 3, 20, 18})}, at::remainder(at::arange(5, at::kLong), 4)});
  expect_rules_agree(odd_convolutions(), {{waves({6, 2, 7, 9})}, at::remainder(at::arange(6, at::kLong), 3)});
}

TEST(SampleWalkTest, TransposedConvolutionsAgree) {
  for (const std::int64_t extent : {8, 16}) {  // by pairs of positions, and by the gradient of each sample
    auto model =
        registered("conv_autoencoder",
                   {.task = "image_classification", .sample_shape = {3, extent, extent}, .classes = 2},
                   {{"channels", "4,6"}});
    expect_rules_agree(std::move(model),
                       {{waves({5, 3, extent, extent})}, at::sigmoid(waves({5, 3, extent, extent}).flip(0))});
  }
}

TEST(SampleWalkTest, BagsOfWordsAgree) {
  const auto ids = at::tensor({3, 5, 3, 0, 1, 0, 0, 0, 2, 2, 2, 2, 9, 8, 7, 6}, at::kInt).reshape({4, 4});
  auto model = models::find_model("nbow").make(
      {.task = "text_classification", .sample_shape = {4}, .classes = 2, .vocabulary = 10}, {});
  model->initialise(5);
  expect_rules_agree(std::move(model), {{ids}, at::remainder(at::arange(4, at::kLong), 2)});
}

/// Whole numbers in [first, below), int32.
at::Tensor words(models::Shape shape, std::int64_t first, std::int64_t below) {
  const auto numbers = at::floor((waves(std::move(shape)) / 4 + 0.5) * static_cast<double>(below - first));
  return at::clamp(numbers, 0, below - first - 1).add(first).to(at::kInt);
}

std::unique_ptr<models::Model> small_gpt(std::int64_t tokens, std::int64_t vocabulary,
                                         const std::string& width = "8") {
  return registered("gpt", {.task = "language_modelling", .sample_shape = {tokens}, .vocabulary = vocabulary},
                    {{"layers", "2"}, {"heads", "2"}, {"width", width}, {"block", "12"}, {"dropout", "0"}});
}

Samples texts(std::int64_t n, std::int64_t tokens, std::int64_t vocabulary) {
  return {{words({n, tokens}, 0, vocabulary)}, words({n, tokens}, 0, vocabulary).flip(1).to(at::kLong)};
}

// Tied words, by pairs of rows and by each sample's gradient; and a text of one token.
TEST(SampleWalkTest, AGptAgrees) {
  for (const auto& [n, tokens, vocabulary] :
       std::vector<std::array<std::int64_t, 3>>{{5, 9, 7}, {4, 2, 60}, {1, 12, 5}, {3, 1, 4}, {17, 3, 11}}) {
    SCOPED_TRACE(tokens);
    expect_rules_agree(small_gpt(tokens, vocabulary), texts(n, tokens, vocabulary));
  }
  expect_rules_agree(small_gpt(3, 9, "32"), texts(6, 3, 9));
}

TEST(SampleWalkTest, FrozenParametersTakeNoPart) {
  for (const char* frozen : {"transformer.wte.weight", "transformer.h.0.attn.c_attn.weight",
                             "transformer.ln_f.bias", "transformer.wpe.weight"}) {
    SCOPED_TRACE(frozen);
    auto model = small_gpt(6, 8);
    model->freeze([&](const std::string& name) { return name == frozen; });
    expect_rules_agree(std::move(model), texts(4, 6, 8));
  }
}

Samples pairs_of_sentences(const std::vector<int>& sources, const std::vector<int>& targets) {
  const auto n = static_cast<std::int64_t>(sources.size());
  auto source = words({n, 9}, 3, 13);
  auto target = words({n, 8}, 3, 17).flip(0).contiguous();
  for (std::int64_t i = 0; i < n; ++i) {
    source[i]
        .narrow(0, sources[static_cast<std::size_t>(i)], 9 - sources[static_cast<std::size_t>(i)])
        .zero_();
    target[i]
        .narrow(0, targets[static_cast<std::size_t>(i)], 8 - targets[static_cast<std::size_t>(i)])
        .zero_();
  }
  return {{source, target}, target};
}

// Sentences of any lengths, an empty source among them; sums over the steps of an LSTM.
TEST(SampleWalkTest, ATranslatorAgrees) {
  for (const char* hidden : {"3", "20"}) {
    const auto model = [&] {
      return registered(
          "seq2seq", {.task = "translation", .sample_shape = {9}, .vocabulary = 13, .target_vocabulary = 17},
          {{"embedding", "6"}, {"hidden", hidden}, {"dropout", "0"}, {"teacher-forcing", "1"}});
    };
    expect_rules_agree(model(), pairs_of_sentences({4, 9, 1, 7, 7}, {8, 3, 5, 2, 8}));
    expect_rules_agree(model(), pairs_of_sentences({5}, {4}));
    expect_rules_agree(model(), pairs_of_sentences({3, 0, 6}, {6, 2, 3}));
  }
}

TEST(SampleWalkTest, AnyNumberOfThreadsGivesTheSame) {
  for (const int threads : {2, 3}) expect_rules_agree(small_gpt(12, 30, "16"), texts(5, 12, 30), threads);
}

TEST(SampleWalkTest, ALayerWithoutARuleIsNamed) {
  Layers layers;
  layers.push_back(std::make_unique<Scale>(4));
  const auto model = classifier_of(std::move(layers), 4);
  EXPECT_EQ(SampleWalk::obstacle(*model), "layer scale has no rule");
}

/// Adds to this process, and so stands last.
TEST(SampleWalkTest, NothingIsKnownOfAPluginsLayersAndLosses) {
  const auto own = small_gpt(12, 30, "16");
  Layers layers;
  layers.push_back(std::make_unique<models::Linear>("fc", 4, 4));
  const auto other = classifier_of(std::move(layers), 4);
  ASSERT_EQ(SampleWalk::obstacle(*own), std::nullopt);
  const auto none = [](const models::DatasetFacts&, const models::ModelOptions&) {
    return std::unique_ptr<models::Model>();
  };
  models::add_from_plugin("libmine.so", {.models = {{.name = "mine", .make = none}}});
  EXPECT_EQ(SampleWalk::obstacle(*own), std::nullopt);
  EXPECT_THAT(SampleWalk::obstacle(*other).value_or(""), testing::HasSubstr("may be a plug-in's"));
  const auto sums = [](const models::Tensors&, const at::Tensor&) { return models::LossSums(); };
  models::add_from_plugin("libmine.so", {.losses = {{.name = "mine", .sums = sums}}});
  EXPECT_EQ(SampleWalk::obstacle(*own), "a plug-in has losses of its own");
}

}  // namespace
}  // namespace dtrain::parallel
