#include "parallel/strategy/state_view.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "models/slicing/tensor_group.hpp"

namespace dtrain::parallel {
namespace {

using testing::UnorderedElementsAre;

/// An optimizer with state, over a model's flat parameters.
struct Trained {
  std::unique_ptr<models::Model> model;
  FlatParameters parameters{*model, at::kFloat};
  std::unique_ptr<optim::Optimizer> optimizer =
      optim::make_optimizer({.name = "adam"}, parameters.size(), parameters.values().options());

  StateView view() { return {parameters, *model, *optimizer}; }
  StateTensor find(const std::string& group, const std::string& name) {
    for (auto& tensor : view().tensors()) {
      if (tensor.group == group && tensor.name == name) return tensor;
    }
    ADD_FAILURE() << "there is no " << group << "/" << name;
    return {};
  }
};

std::unique_ptr<models::Model> mlp() {
  auto model = models::find_model("mlp").make(
      {.task = "table_classification", .sample_shape = {12}, .classes = 3}, {{"hidden", "16,8"}});
  model->initialise(1);
  return model;
}

TEST(StateViewTest, HasEachParameterAndItsOptimizerStateByName) {
  Trained trained{mlp()};
  std::set<std::string> names;
  for (const auto& tensor : trained.view().tensors()) {
    EXPECT_TRUE(names.insert(tensor.group + "/" + tensor.name).second) << tensor.name << " is there twice";
    EXPECT_EQ(tensor.is_of_optimizer(), tensor.group != StateTensor::kModel);
    EXPECT_EQ(tensor.slice, nullptr);
    EXPECT_FALSE(tensor.value.requires_grad());
  }
  EXPECT_EQ(names.size(), 3 * trained.model->parameters().size());
  EXPECT_EQ(trained.find("optimizer/exp_avg", "input_fc.weight").value.sizes(), at::IntArrayRef({16, 12}));
}

TEST(StateViewTest, WritingToItChangesWhatIsTrained) {
  Trained trained{mlp()};
  const at::NoGradGuard no_grad;
  trained.find("model", "output_fc.bias").value.fill_(5);
  const auto parameters = trained.model->parameters();
  const auto bias = std::ranges::find(parameters, "output_fc.bias", &models::Parameter::name);
  EXPECT_TRUE(at::equal((*bias)->value, at::full({3}, 5.0F)));
  EXPECT_EQ(trained.view().flat_parameters().sum().item<float>(),
            trained.parameters.values().sum().item<float>());
  trained.find("optimizer/exp_avg_sq", "output_fc.bias").value.fill_(2);
  double sum = 0;
  for (const auto& state : trained.optimizer->state()) sum += state.value.sum().item<double>();
  EXPECT_EQ(sum, 6) << "no other element of the optimizer's state is one of them";
}

TEST(StateViewTest, BuffersAreOfTheModelAndHaveNoOptimizerState) {
  Trained trained{models::find_model("resnet18")
                      .make({.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10},
                            {{"width", "4"}})};
  std::vector<std::string> groups;
  for (const auto& tensor : trained.view().tensors()) {
    if (tensor.name == "bn1.running_mean") groups.push_back(tensor.group);
  }
  EXPECT_THAT(groups, UnorderedElementsAre(StateTensor::kModel));
}

TEST(StateViewTest, SlicesSayWhatOfTheWholeTheyAre) {
  models::RankAlone second_of_two(1, 2);
  auto model = mlp();
  model->slice(second_of_two);
  Trained trained{std::move(model)};
  for (const std::string group : {"model", "optimizer/exp_avg"}) {
    const auto weight = trained.find(group, "input_fc.weight");
    EXPECT_EQ(weight.value.sizes(), at::IntArrayRef({8, 12}));
    ASSERT_NE(weight.slice, nullptr);
    EXPECT_EQ(weight.slice->whole, models::Shape({16, 12}));
    EXPECT_EQ(weight.slice->part.begin, 8);
    EXPECT_EQ(trained.find(group, "output_fc.weight").slice, nullptr) << "each rank has the whole";
  }
}

TEST(StateViewTest, HasTheShardsThatARankHolds) {
  Trained trained{mlp()};
  const auto& entry = trained.parameters.entries().back();  // the first layer's bias or weight
  const std::vector<Range> held = {{5, 9}, {entry.offset + 1, entry.offset + entry.count}};
  const auto count = held[0].size() + held[1].size();
  const auto optimizer = optim::make_optimizer({.name = "adam"}, trained.parameters.size(),
                                               {{.begin = 0, .end = trained.parameters.size()}},
                                               trained.parameters.values().options(), {}, held);
  optimizer->state()[0].value.copy_(at::arange(count));
  const StateView view(trained.parameters, *trained.model, *optimizer, held);
  std::int64_t elements = 0;
  at::Tensor flat = at::full({trained.parameters.size()}, -1.0F);
  for (const auto& tensor : view.tensors()) {
    EXPECT_EQ(tensor.shard.has_value(), tensor.is_of_optimizer());
    if (tensor.group != "optimizer/exp_avg") continue;
    elements += tensor.value.numel();
    EXPECT_EQ(tensor.value.sizes(), at::IntArrayRef(tensor.shard->extent));
    const auto place = std::ranges::find_if(trained.parameters.entries(), [&tensor](const auto& one) {
      return one.parameter->name == tensor.name;
    });
    auto part = FlatParameters::view(flat, *place);
    for (std::size_t dim = 0; dim < tensor.shard->offset.size(); ++dim)
      part =
          part.narrow(static_cast<std::int64_t>(dim), tensor.shard->offset[dim], tensor.shard->extent[dim]);
    part.copy_(tensor.value);
  }
  std::int64_t next = 0;
  for (const Range& range : held) {
    for (auto i = range.begin; i < range.end; ++i, ++next) {
      const auto found = flat[i].item<float>();
      EXPECT_TRUE(found < 0 || found == static_cast<float>(next)) << i << ": " << found;  // below 0: a gap
    }
  }
  EXPECT_GE(elements, entry.count - 1);
}

}  // namespace
}  // namespace dtrain::parallel
