#include "parallel/pipeline/stage_cuts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

#include "core/error.hpp"
#include "models/layers/linear.hpp"
#include "models/model.hpp"
#include "parallel/pipeline/plain_layers.hpp"

namespace dtrain::parallel {
namespace {

using enum Computed;

double greatest(const StageCuts& cuts, const std::vector<double>& costs) {
  double most = 0;
  for (const Range& range : cuts.layers) {
    most = std::max(most, std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0));
  }
  return most;
}

/// The least greatest sum of `stages` runs from `first` on, by trying everything.
double best(const std::vector<double>& costs, std::size_t first, int stages) {
  if (stages == 1)
    return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(first), costs.end(), 0.0);
  double least = 1e300;
  double sum = 0;
  for (std::size_t cut = first + 1; cut + static_cast<std::size_t>(stages) - 1 <= costs.size(); ++cut) {
    sum += costs[cut - 1];
    least = std::min(least, std::max(sum, best(costs, cut, stages - 1)));
  }
  return least;
}

TEST(StageCutsTest, TheHeaviestStageIsAsLightAsCanBe) {
  const std::vector<double> costs = {7, 1, 1, 9, 0, 3, 3, 2, 8, 1, 0};
  for (int stages = 1; stages <= 11; ++stages) {
    const auto cuts = cut_stages(costs, stages, 1, "m");
    ASSERT_EQ(cuts.stages(), stages);
    EXPECT_EQ(greatest(cuts, costs), best(costs, 0, stages)) << stages << " stages";
    std::int64_t next = 0;
    for (const Range& range : cuts.layers) {
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.end, range.begin);
      next = range.end;
    }
    EXPECT_EQ(next, 11);
  }
}

TEST(StageCutsTest, StagesGoRoundTheRanks) {
  const auto cuts = cut_stages({1, 1, 1, 1, 1, 1, 1, 1}, 2, 2, "m");
  EXPECT_EQ(cuts.rank_of(0), 0);
  EXPECT_EQ(cuts.rank_of(3), 1);
  EXPECT_EQ(cuts.layers_of(1), (std::vector<std::size_t>{2, 3, 6, 7}));
  EXPECT_EQ(cuts.stage_of(5), 2);
}

TEST(StageCutsTest, MoreStagesThanLayersAreRefusedWithTheNumbers) {
  try {
    cut_stages({1, 1, 1}, 2, 2, "nbow");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("4 stages are more than the 3 layers of the model nbow"),
              std::string::npos);
  }
}

TEST(WorkOfLayersTest, WeightsAndActivationsCountBesideFlops) {
  const models::DatasetFacts images{
      .task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10};
  const auto vgg = models::find_model("vgg11").make(images, {{"width", "8"}, {"hidden", "64"}});
  const auto inputs = vgg->input_shapes(16, images.sample_shape);
  const auto work = work_of_layers(*vgg, inputs, by_own_kernels);
  ASSERT_EQ(work.size(), vgg->layers().size());
  const auto first = vgg->layers().front()->cost(inputs);
  EXPECT_EQ(work.front(), first.flops + 9 * first.parameter_bytes + 22 * first.activation_bytes);
  EXPECT_EQ(work_of_layers(*vgg, inputs, by_a_library).front(),
            first.flops + 50 * (first.parameter_bytes + first.activation_bytes));
}

TEST(WorkOfLayersTest, OfAConvolutionWhatIsLeftToMultiply) {
  const models::DatasetFacts images{
      .task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10};
  const auto vgg = models::find_model("vgg11").make(images, {{"width", "64"}, {"hidden", "64"}});
  const models::Layer& layer = *vgg->layers()[3];  // 64 to 128 channels on 16 x 16 pixels
  const auto cost = layer.cost({{2, 64, 16, 16}});
  EXPECT_NEAR(cost.spared_flops, 0.75 * cost.flops, 1e-3 * cost.flops)
      << "36 products for 16 outputs, not 144";
  EXPECT_EQ(layer.cost({{2, 64, 2, 2}}).spared_flops, layer.cost({{2, 64, 2, 2}}).flops * (1 - 16.0 / 36));
  EXPECT_LT(layer.cost({{2, 64, 5, 5}}).spared_flops, 0.75 * layer.cost({{2, 64, 5, 5}}).flops)
      << "tiles hang over the edge";
  EXPECT_EQ(cost.transformed_bytes, 36.0 * 64 * 128 * 4) << "whatever the machine's vectors are";
  const auto work = work_of_layers(*vgg, vgg->input_shapes(2, {3, 32, 32}), by_a_library);
  EXPECT_EQ(work[3], cost.flops + 50 * (cost.parameter_bytes + cost.activation_bytes));
}

TEST(WorkOfLayersTest, OfATableOnlyTheWordsThatCome) {
  const models::DatasetFacts text{.task = "language_modelling", .sample_shape = {8}, .vocabulary = 50257};
  const auto gpt = models::find_model("gpt").make(
      text, {{"layers", "2"}, {"width", "64"}, {"heads", "2"}, {"block", "8"}});
  const auto work = work_of_layers(*gpt, gpt->input_shapes(4, text.sample_shape), by_own_kernels);
  EXPECT_LT(work[0], work[1]);           // the table of all words beside an attention
  EXPECT_GT(work.back(), 10 * work[1]);  // the output layer multiplies by all of them
}

std::unique_ptr<models::Model> mlp(const std::string& hidden) {
  const models::DatasetFacts images{
      .task = "image_classification", .sample_shape = {1, 28, 28}, .classes = 10};
  return models::find_model("mlp").make(images, {{"hidden", hidden}});
}

double greatest_work(const models::Model& model, const StageCuts& cuts) {
  return greatest(cuts, work_of_layers(model, model.input_shapes(64, {1, 28, 28}), by_own_kernels));
}

TEST(CutWithinLayersTest, AStageEndsWithinALayerThatIsLargerThanAStage) {
  for (const int ranks : {2, 3}) {
    const auto model = mlp("512");
    const auto inputs = model->input_shapes(64, {1, 28, 28});
    const auto count = model->parameter_count();
    const auto before =
        greatest_work(*model, cut_stages(work_of_layers(*model, inputs, by_own_kernels), ranks, 1, "mlp"));
    const auto cuts = cut_within_layers(*model, inputs, ranks, by_own_kernels);
    ASSERT_EQ(cuts.stages(), ranks);
    EXPECT_EQ(cuts.layers.back().end, std::ssize(model->layers()));
    EXPECT_LT(greatest_work(*model, cuts), 0.75 * before) << ranks << " ranks";
    EXPECT_EQ(model->parameter_count(), count);
    int parts = 0;
    for (std::size_t layer = 0; layer < model->layers().size(); ++layer) {
      if (!model->layers()[layer]->name().ends_with(", first")) continue;
      ++parts;
      EXPECT_EQ(cuts.stage_of(layer) + 1, cuts.stage_of(layer + 1)) << "both parts in one stage";
    }
    EXPECT_EQ(parts, 1);
  }
}

/// Three linear layers of 64, and what borrows the second one's weight.
std::unique_ptr<models::Model> linear_layers(bool borrows) {
  std::vector<std::unique_ptr<models::Layer>> layers;
  for (const char* name : {"a", "b", "c"}) layers.push_back(std::make_unique<models::Linear>(name, 64, 64));
  if (borrows) layers.push_back(std::make_unique<Borrower>(*layers[1]));
  return std::make_unique<PlainLayers>("linear", std::move(layers));
}

TEST(CutWithinLayersTest, ALayerStaysWholeWhoseOutputsLieElsewhereOrWhoseWeightIsBorrowed) {
  const auto rows = linear_layers(false);
  cut_within_layers(*rows, {{8, 64}}, 2, by_own_kernels);
  EXPECT_EQ(rows->layers().size(), 4U) << "the second of three is cut";
  const auto texts = linear_layers(false);
  cut_within_layers(*texts, {{8, 5, 64}}, 2, by_own_kernels);
  EXPECT_EQ(texts->layers().size(), 3U) << "of [n, tokens, features] dim 1 is not the outputs";
  const auto tied = linear_layers(true);
  cut_within_layers(*tied, {{8, 64}}, 2, by_own_kernels);
  EXPECT_NE(tied->layers()[1]->name(), "b, first");
  EXPECT_EQ(tied->borrowed().front().parameter->value.size(0), 64) << "as the borrower knows it";
}

// The second part makes a gradient of its inputs, which before the first weights no layer has a use for.
TEST(CutWithinLayersTest, OfTheFirstWeightsTheFirstStageHasMore) {
  const auto model = mlp("512");
  const auto inputs = model->input_shapes(64, {1, 28, 28});
  cut_within_layers(*model, inputs, 2, by_own_kernels);
  const auto parts = std::ranges::find_if(
      model->layers(), [](const auto& layer) { return layer->name().ends_with(", first"); });
  ASSERT_NE(parts, model->layers().end());
  EXPECT_GT((*parts)->parameters().at(0).value.size(0), 256);
}

TEST(CutWithinLayersTest, AModelStaysWholeWhereLittleIsWon) {
  const auto alone = mlp("512");
  EXPECT_EQ(cut_within_layers(*alone, alone->input_shapes(64, {1, 28, 28}), 1, by_own_kernels).stages(), 1);
  EXPECT_EQ(alone->layers().size(), mlp("512")->layers().size());
  const auto narrow = mlp("40");  // of 40 outputs no two parts are large enough
  const auto layers = narrow->layers().size();
  cut_within_layers(*narrow, narrow->input_shapes(64, {1, 28, 28}), 2, by_own_kernels);
  EXPECT_EQ(narrow->layers().size(), layers);
  EXPECT_THROW(cut_within_layers(*narrow, narrow->input_shapes(64, {1, 28, 28}), 9, by_own_kernels), Error);
}

}  // namespace
}  // namespace dtrain::parallel
