#include "parallel/pipeline/stage_cuts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "models/model.hpp"

namespace dtrain::parallel {
namespace {

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
  const auto work = work_of_layers(*vgg, inputs);
  ASSERT_EQ(work.size(), vgg->layers().size());
  const auto first = vgg->layers().front()->cost(inputs);
  EXPECT_EQ(work.front(), first.flops + 50 * (first.parameter_bytes + first.activation_bytes));
}

TEST(WorkOfLayersTest, OfATableOnlyTheWordsThatCome) {
  const models::DatasetFacts text{.task = "language_modelling", .sample_shape = {8}, .vocabulary = 50257};
  const auto gpt = models::find_model("gpt").make(
      text, {{"layers", "2"}, {"width", "64"}, {"heads", "2"}, {"block", "8"}});
  const auto work = work_of_layers(*gpt, gpt->input_shapes(4, text.sample_shape));
  EXPECT_LT(work[0], work[1]);           // the table of all words beside an attention
  EXPECT_GT(work.back(), 10 * work[1]);  // the output layer multiplies by all of them
}

}  // namespace
}  // namespace dtrain::parallel
