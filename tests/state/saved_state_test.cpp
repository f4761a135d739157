#include "state/saved_state.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "models/slicing/slices.hpp"
#include "state/threads_group.hpp"
#include "topology/cluster.hpp"

namespace dtrain::state {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr std::int64_t kLarge = std::int64_t{1} << 20;  // floats: 4 MiB, one writer's share

at::Tensor values(std::int64_t count, double first) { return at::arange(count, at::kFloat).add_(first); }

parallel::StateTensor tensor(const std::string& name, at::Tensor value) {
  return {.group = parallel::StateTensor::kModel, .name = name, .value = std::move(value), .slice = nullptr};
}

/// Rank `index` of `count` of a tensor group has its part of the rows of `whole`.
parallel::StateTensor slice_of(const std::string& name, const at::Tensor& whole, int index, int count) {
  const auto shape = whole.sizes().vec();
  models::HeldSlice slice{.whole = shape, .view = shape, .dim = 0, .part = {}};
  slice.part = part_of(shape.front(), index, count);
  const auto held = models::part_of_whole(whole, slice, slice.part);
  return {.group = parallel::StateTensor::kModel,
          .name = name,
          .value = held,
          .slice = std::make_shared<models::HeldSlice>(slice)};
}

/// The state as each rank of a mesh saves it.
class SavedStates {
 public:
  explicit SavedStates(const topology::MeshShape& shape)
      : mesh_(topology::uniform_cluster(1, shape.size()), shape), job_(shape.size()) {
    for (int rank = 0; rank < shape.size(); ++rank) {
      const auto where = mesh_.coordinates(rank);
      groups_.emplace_back(job_, mesh_.group(rank, topology::Axis::tensor), where.tensor);
      saved_.emplace_back(shape, where, groups_.back());
    }
  }

  using PartOf = std::function<std::vector<parallel::StateTensor>(const topology::MeshCoordinates&)>;
  void take(const PartOf& part_of, std::int64_t step = 7) {
    job_.each([&](int rank) {
      saved_[static_cast<std::size_t>(rank)].take(part_of(mesh_.coordinates(rank)), {.step = step});
    });
  }

  /// By rank.
  std::vector<int> writers() const {
    std::vector<int> all;
    for (const auto& saved : saved_) all.push_back(saved.writer());
    return all;
  }
  std::vector<std::string> names_of(int rank) const {
    std::vector<std::string> names;
    for (const auto& reference : saved_[static_cast<std::size_t>(rank)].references())
      names.push_back(reference.group + "/" + reference.slice.name);
    return names;
  }
  /// What the one rank that has `name` writes: floats. Fails where it is none, or several.
  at::Tensor written(const std::string& name) const {
    at::Tensor found;
    for (const auto& saved : saved_) {
      for (const auto& reference : saved.references()) {
        if (reference.slice.name != name) continue;
        EXPECT_FALSE(found.defined()) << name << " has two writers";
        found = at::from_blob(const_cast<void*>(reference.data), reference.slice.global_shape, at::kFloat);
      }
    }
    EXPECT_TRUE(found.defined()) << name << " has no writer";
    return found;
  }
  const SavedState& of(int rank) const { return saved_[static_cast<std::size_t>(rank)]; }
  int messages() const { return job_.messages(); }

 private:
  topology::Mesh mesh_;
  ThreadsJob job_;
  std::deque<ThreadsGroup> groups_;
  std::deque<SavedState> saved_;
};

TEST(SavedStateTest, CopiesShareOutWhatIsLarge) {
  SavedStates states({.data = 2});
  const auto weight = values(kLarge, 1);
  const auto moments = values(kLarge, 2);
  const auto bias = values(10, 3);
  states.take([&](const auto&) {
    return std::vector{tensor("bias", bias), tensor("weight", weight), tensor("moments", moments)};
  });
  EXPECT_THAT(states.writers(), ElementsAre(0, 1));
  EXPECT_THAT(states.names_of(0), ElementsAre("model/bias", "model/moments"));
  EXPECT_THAT(states.names_of(1), ElementsAre("model/weight"));
  EXPECT_TRUE(at::equal(states.written("weight"), weight));
  EXPECT_TRUE(at::equal(states.written("moments"), moments));
  EXPECT_TRUE(at::equal(states.written("bias"), bias));
  EXPECT_EQ(states.messages(), 0) << "each copy has all of it";
}

TEST(SavedStateTest, TwoStagesWriteTheirPartsOfALayerInTwo) {
  SavedStates states({.data = 2, .pipe = 2});
  const auto whole = values(20, 0).reshape({5, 4});
  states.take([&](const auto& where) {
    auto part = slice_of("weight", whole, where.pipe, 2);
    auto slice = *part.slice;
    slice.rest = models::HeldSlice::Rest::in_another_layer;
    part.slice = std::make_shared<models::HeldSlice>(slice);
    return std::vector{part};
  });
  EXPECT_THAT(states.writers(), UnorderedElementsAre(0, -1, 2, -1));
  auto found = at::zeros({5, 4});
  for (int rank = 0; rank < 4; ++rank) {
    for (const auto& reference : states.of(rank).references()) {
      const auto& slice = reference.slice;
      EXPECT_EQ(slice.global_shape, (models::Shape{5, 4}));
      const auto part = at::from_blob(const_cast<void*>(reference.data), slice.extent, at::kFloat);
      found.narrow(0, slice.offset[0], slice.extent[0]).add_(part);
    }
  }
  EXPECT_TRUE(at::equal(found, whole)) << "each element once";
  EXPECT_EQ(states.messages(), 0);
}

TEST(SavedStateTest, OneRankOfAStageWritesWhatIsSmall) {
  SavedStates states({.data = 2, .pipe = 2});
  states.take([&](const auto& where) {
    return std::vector{tensor(where.pipe == 0 ? "first" : "last", values(10, where.pipe))};
  });
  EXPECT_THAT(states.writers(), UnorderedElementsAre(0, -1, 2, -1)) << "numbered by stage";
  EXPECT_TRUE(at::equal(states.written("first"), values(10, 0)));
  EXPECT_TRUE(at::equal(states.written("last"), values(10, 1)));
}

TEST(SavedStateTest, SlicesArePutTogetherWithinOneCopy) {
  SavedStates states({.data = 2, .tensor = 2});
  const auto embedding = values(std::int64_t{4} * kLarge, 1).reshape({4096, 1024});
  const auto head = values(7 * 5, 9).reshape({7, 5});
  const auto norm = values(5, 4);
  states.take([&](const auto& where) {
    return std::vector{slice_of("embedding", embedding, where.tensor, 2),
                       slice_of("head", head, where.tensor, 2), tensor("norm", norm)};
  });
  EXPECT_TRUE(at::equal(states.written("embedding"), embedding));
  EXPECT_TRUE(at::equal(states.written("head"), head)) << "uneven parts";
  EXPECT_TRUE(at::equal(states.written("norm"), norm)) << "held by both ranks of the tensor group";
  EXPECT_EQ(states.messages(), 2) << "each slice goes once, within one copy";
}

TEST(SavedStateTest, TheStageThatOwnsATensorSavesItForAllStages) {
  SavedStates states({.data = 2, .pipe = 2});
  states.take([&](const auto& where) {
    auto period = tensor("period", values(4, 1));
    period.owner.pipe = 1;
    return std::vector{tensor(where.pipe == 0 ? "first" : "last", values(10, where.pipe)), period};
  });
  EXPECT_TRUE(at::equal(states.written("period"), values(4, 1)));
  EXPECT_THAT(states.names_of(1), UnorderedElementsAre("model/last", "model/period"));
}

TEST(SavedStateTest, EachCopySavesTheValuesThatItOwns) {
  SavedStates states({.data = 3});
  states.take([&](const auto& where) {
    auto moments = tensor("moments", values(4, where.data));
    moments.group = "optimizer/exp_avg";
    moments.owner.copy = {.index = where.data, .count = 3};
    return std::vector{moments};
  });
  for (int copy = 0; copy < 3; ++copy) {
    EXPECT_THAT(states.names_of(copy), ElementsAre(group_of_copy("optimizer/exp_avg", copy) + "/moments"));
    const auto reference = states.of(copy).references().front();
    EXPECT_TRUE(
        at::equal(at::from_blob(const_cast<void*>(reference.data), {4}, at::kFloat), values(4, copy)));
  }
}

TEST(SavedStateTest, IsACopyOfTheMomentInTheSameMemoryEachTime) {
  SavedStates states({});
  EXPECT_FALSE(states.of(0).taken());
  auto weight = values(4, 1);
  const auto take = [&](std::int64_t step) {
    states.take([&](const auto&) { return std::vector{tensor("weight", weight)}; }, step);
    return states.of(0).references().front().data;
  };
  const void* const memory = take(7);
  weight.add_(10);
  EXPECT_TRUE(at::equal(states.written("weight"), values(4, 1))) << "the training goes on";
  EXPECT_EQ(take(8), memory);
  EXPECT_TRUE(at::equal(states.written("weight"), values(4, 11)));
  EXPECT_EQ(states.of(0).info().step, 8);
}

TEST(SavedStateTest, WhatLiesOtherwiseInMemoryIsWrittenRowByRow) {
  SavedStates states({});
  const auto weight = values(12, 0).reshape({4, 3});
  states.take([&](const auto&) { return std::vector{tensor("weight", weight.t())}; });
  EXPECT_TRUE(at::equal(states.written("weight"), weight.t()));
}

}  // namespace
}  // namespace dtrain::state
