#include "state/part_copies.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>

#include "state/threads_group.hpp"

namespace dtrain::state {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// What a rank holds after `step`: a tensor of its own length and type, and one that is a slice.
std::vector<parallel::StateTensor> part_at(const topology::MeshCoordinates& where, std::int64_t step) {
  const auto value = static_cast<double>(100 * step + 10 * where.pipe + where.tensor);
  models::HeldSlice slice{
      .whole = {8, 2}, .view = {4, 2, 2}, .dim = 1, .part = {where.tensor, where.tensor + 1}};
  if (where.pipe == 1) slice.rest = models::HeldSlice::Rest::in_another_layer;
  return {{.group = parallel::StateTensor::kModel,
           .name = "weight" + std::to_string(where.pipe),
           .value = at::full({3 + where.pipe}, value, at::kFloat),
           .slice = nullptr},
          {.group = "optimizer/momentum",
           .name = "sliced",
           .value = at::full({4, 2}, value + 0.5, at::kDouble),
           .slice = std::make_shared<models::HeldSlice>(slice)}};
}

/// Each rank of a mesh with its copies.
class Copying {
 public:
  Copying(int nodes, const topology::MeshShape& shape)
      : cluster_(topology::uniform_cluster(nodes, shape.size() / nodes)),
        mesh_(cluster_, shape),
        job_(shape.size()) {
    std::vector<int> all;
    for (int rank = 0; rank < shape.size(); ++rank) all.push_back(rank);
    for (int rank = 0; rank < shape.size(); ++rank) groups_.emplace_back(job_, all, rank);
    copies_.resize(all.size());
    job_.each([this](int rank) {
      copies_[static_cast<std::size_t>(rank)] = std::make_unique<PartCopies>(
          PartCopies::Ranks{
              .mesh = mesh_,
              .cluster = cluster_,
              .world = groups_[static_cast<std::size_t>(rank)],
              .all_gather = [this, rank](const auto& text) { return job_.all_gather(rank, text); }},
          part_at(mesh_.coordinates(rank), 0));
    });
  }

  void take(std::int64_t step) {
    job_.each([this, step](int rank) {
      copies_[static_cast<std::size_t>(rank)]->take(part_at(mesh_.coordinates(rank), step), {.step = step});
    });
  }

  /// Places whose parts a rank holds, as `pipe.tensor`; their values are those of `step`.
  std::vector<std::string> held(int rank, std::int64_t step) const {
    std::vector<std::string> places;
    for (const auto& part : copies_[static_cast<std::size_t>(rank)]->held()) {
      if (part.step != step) continue;
      EXPECT_EQ(part.info->step, step);
      expect_like(part.tensors, part_at(part.where, step));
      places.push_back(std::to_string(part.where.pipe) + "." + std::to_string(part.where.tensor));
    }
    return places;
  }
  std::set<std::int64_t> steps(int rank) const {
    std::set<std::int64_t> all;
    for (const auto& part : copies_[static_cast<std::size_t>(rank)]->held()) all.insert(part.step);
    return all;
  }
  int node_of(int rank) const { return cluster_.ranks[static_cast<std::size_t>(rank)].node; }
  int rank_at(const topology::MeshCoordinates& where) const { return mesh_.rank_at(where); }
  ThreadsGroup& group(int rank) { return groups_[static_cast<std::size_t>(rank)]; }
  int messages() const { return job_.messages(); }

 private:
  static void expect_like(const std::vector<parallel::StateTensor>& found,
                          const std::vector<parallel::StateTensor>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].group, expected[i].group);
      EXPECT_EQ(found[i].name, expected[i].name);
      EXPECT_EQ(found[i].value.scalar_type(), expected[i].value.scalar_type());
      EXPECT_TRUE(at::equal(found[i].value, expected[i].value)) << found[i].name;
      ASSERT_EQ(found[i].slice == nullptr, expected[i].slice == nullptr);
      if (found[i].slice == nullptr) continue;
      EXPECT_EQ(found[i].slice->whole, expected[i].slice->whole);
      EXPECT_EQ(found[i].slice->view, expected[i].slice->view);
      EXPECT_EQ(found[i].slice->dim, expected[i].slice->dim);
      EXPECT_EQ(found[i].slice->part.begin, expected[i].slice->part.begin);
      EXPECT_EQ(found[i].slice->part.end, expected[i].slice->part.end);
      EXPECT_EQ(found[i].slice->rest, expected[i].slice->rest);
    }
  }

  topology::Cluster cluster_;
  topology::Mesh mesh_;
  ThreadsJob job_;
  std::deque<ThreadsGroup> groups_;
  std::vector<std::unique_ptr<PartCopies>> copies_;
};

TEST(PartCopiesTest, EachPartIsHeldByTwoRanks) {
  Copying ranks(1, {.data = 1, .pipe = 3});
  EXPECT_THAT(ranks.held(0, 4), IsEmpty());
  ranks.take(4);
  EXPECT_THAT(ranks.held(0, 4), ElementsAre("0.0", "2.0"));
  EXPECT_THAT(ranks.held(1, 4), ElementsAre("1.0", "0.0"));
  EXPECT_THAT(ranks.held(2, 4), ElementsAre("2.0", "1.0"));
}

TEST(PartCopiesTest, TheSecondRankIsOnAnotherNodeWhereThatIsPossible) {
  Copying ranks(2, {.data = 1, .pipe = 2, .tensor = 2});
  ranks.take(4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto held = ranks.held(rank, 4);
    ASSERT_EQ(held.size(), 2) << rank;
    const int other = ranks.rank_at({.data = 0, .pipe = held[1][0] - '0', .tensor = held[1][2] - '0'});
    EXPECT_NE(ranks.node_of(rank), ranks.node_of(other)) << rank << " keeps the part of " << other;
  }
}

TEST(PartCopiesTest, CopiesOfTheModelAreCopiesAlready) {
  Copying ranks(1, {.data = 3});
  ranks.take(4);
  EXPECT_THAT(ranks.held(1, 4), ElementsAre("0.0"));
  EXPECT_EQ(ranks.messages(), 0);
}

TEST(PartCopiesTest, EachCopyOfTheModelKeepsItsOwn) {
  Copying ranks(1, {.data = 2, .pipe = 2});
  ranks.take(4);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(ranks.held(rank, 4).size(), 2) << rank;
  EXPECT_EQ(ranks.messages(), 4);
}

TEST(PartCopiesTest, TheTwoNewestStepsStay) {
  Copying ranks(1, {.data = 1, .pipe = 2});
  for (const std::int64_t step : {3, 6, 9}) ranks.take(step);
  EXPECT_THAT(ranks.steps(0), ElementsAre(6, 9));
  EXPECT_THAT(ranks.held(0, 6), ElementsAre("0.0", "1.0"));
  EXPECT_THAT(ranks.held(0, 9), ElementsAre("0.0", "1.0"));
}

TEST(PartCopiesTest, ALossWhileOneIsCopiedLeavesTheOther) {
  Copying ranks(1, {.data = 1, .pipe = 2});
  ranks.take(3);
  ranks.take(6);
  ranks.group(0).fails = true;
  ranks.group(1).fails = true;
  EXPECT_ANY_THROW(ranks.take(9));
  EXPECT_THAT(ranks.steps(0), ElementsAre(6)) << "3 has made room for 9, which is not whole";
  EXPECT_THAT(ranks.held(0, 6), ElementsAre("0.0", "1.0"));
}

}  // namespace
}  // namespace dtrain::state
