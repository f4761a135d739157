#include "models/slicing/slices.hpp"

#include "core/error.hpp"
#include "models/layers/linear.hpp"
#include "models/slicing/tensor_group.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

/// What one model's parameter is called when it is put together from all ranks' parts.
std::map<std::string, at::Tensor> put_together(const Registration& model, const DatasetFacts& facts,
                                               const ModelOptions& options, int ranks) {
  std::map<std::string, at::Tensor> wholes;
  for (int rank = 0; rank < ranks; ++rank) {
    RankAlone group(rank, ranks);
    const auto sliced = model.make(facts, options);
    sliced->slice(group);
    sliced->initialise(5);
    for (const Parameter* parameter : sliced->parameters()) {
      const at::NoGradGuard no_grad;
      if (parameter->slice == nullptr) {
        wholes[parameter->name] = parameter->value.detach().clone();
        continue;
      }
      const HeldSlice& slice = *parameter->slice;
      auto& whole = wholes[parameter->name];
      if (!whole.defined()) whole = at::full(slice.whole, std::nan(""));
      EXPECT_EQ(parameter->value.sizes().vec(), held_shape(slice, slice.part)) << parameter->name;
      put_part(whole, slice, slice.part, parameter->value);
    }
  }
  return wholes;
}

TEST(SlicesTest, EveryModelStartsWithSlicesOfOneDevicesWeights) {
  for (const auto& model : registry()) {
    const auto facts = facts_for(model);
    const ModelOptions options =
        model.name == "gpt" ? ModelOptions{{"heads", "6"}, {"width", "24"}, {"layers", "2"}} : ModelOptions{};
    const auto one = model.make(facts, options);
    one->initialise(5);
    for (const int ranks : {2, 3}) {  // 3: uneven
      const auto wholes = put_together(model, facts, options, ranks);
      ASSERT_EQ(wholes.size(), one->parameters().size());
      for (const Parameter* parameter : one->parameters()) {
        EXPECT_TRUE(at::equal(wholes.at(parameter->name), parameter->value)) << parameter->name;
      }
    }
  }
}

TEST(SlicesTest, ASlicedModelCountsAndCostsWhatItShould) {
  const auto& gpt = find_model("gpt");
  const ModelOptions options = {{"heads", "4"}, {"width", "64"}, {"layers", "2"}, {"block", "16"}};
  const auto whole = gpt.make(facts_for(gpt), options);
  RankAlone group(1, 4);
  const auto sliced = gpt.make(facts_for(gpt), options);
  sliced->slice(group);
  EXPECT_EQ(sliced->parameter_count(), whole->parameter_count());
  std::int64_t held = 0;
  for (const Parameter* parameter : sliced->parameters()) held += parameter->value.numel();
  EXPECT_LT(held, whole->parameter_count() * 3 / 10);
  EXPECT_NEAR(sliced->forward_flops({16}) / whole->forward_flops({16}), 0.25, 0.01);
}

TEST(SlicesTest, HeadsMustDivide) {
  const auto& gpt = find_model("gpt");
  RankAlone group(0, 4);
  const auto model = gpt.make(facts_for(gpt), {});  // 6 heads
  try {
    model->slice(group);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("6 heads"));
    EXPECT_THAT(error.what(), testing::HasSubstr("1, 2, 3, 6"));
  }
}

TEST(SlicesTest, MoreRanksThanElementsAreRefused) {
  RankAlone group(0, 8);
  Linear layer("fc", 12, 5, Slicing::column);
  EXPECT_THROW(layer.slice(group, {}), Error);
}

TEST(SlicesTest, ARowSlicedLayerNeedsSlicedInputs) {
  RankAlone group(0, 2);
  Linear layer("fc", 12, 5, Slicing::row);
  EXPECT_THROW(layer.slice(group, {}), Error);
}

}  // namespace
}  // namespace dtrain::models
