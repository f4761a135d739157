#include "state/gather.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "models/slicing/slices.hpp"
#include "state/dtypes.hpp"

namespace dtrain::state {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Le;

/// What ranks have sent to the one that puts a tensor together: they run before it.
class Mail {
 public:
  class Of : public PartMessages {
   public:
    Of(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
    void send(const at::Tensor& part) override { mail_.sent_[rank_].push_back(part.clone()); }
    void receive(at::Tensor& part, int index) override {
      auto& from = mail_.sent_[mail_.holders_[static_cast<std::size_t>(index)]];
      ASSERT_FALSE(from.empty()) << "nothing was sent by the rank of part " << index;
      ASSERT_EQ(part.sizes(), from.front().sizes());
      part.copy_(from.front());
      from.pop_front();
    }

   private:
    Mail& mail_;
    int rank_;
  };
  /// `holders`: the rank of each part.
  explicit Mail(std::vector<int> holders) : holders_(std::move(holders)) {}
  Of of(int rank) { return {*this, rank}; }
  bool is_empty() const {
    return std::ranges::all_of(sent_, [](const auto& entry) { return entry.second.empty(); });
  }

 private:
  std::vector<int> holders_;
  std::map<int, std::deque<at::Tensor>> sent_;
};

/// Rows 0 to 6 of a 7 x 5 matrix, cut into `parts`, by the rank in `holders` that has each; rank 0 puts them
/// together.
void gathers(const std::vector<int>& holders, std::int64_t dim) {
  const auto whole = at::arange(35, at::kDouble).reshape({7, 5});
  const auto count = static_cast<int>(holders.size());
  const models::HeldSlice slice{.whole = {7, 5}, .view = {7, 5}, .dim = dim, .part = {0, 1}};
  Mail mail(holders);
  at::Tensor found = at::full({7, 5}, -1, at::kDouble);
  for (const int rank : {2, 1, 0}) {
    std::vector<at::Tensor> parts(holders.size());
    for (int i = 0; i < count; ++i) {
      const Range part = part_of(models::sliced_extent(slice), i, count);
      if (holders[static_cast<std::size_t>(i)] == rank)
        parts[static_cast<std::size_t>(i)] = models::part_of_whole(whole, slice, part);
    }
    auto messages = mail.of(rank);
    gather_parts(slice, parts, rank == 0 ? &found : nullptr, messages);
  }
  EXPECT_TRUE(at::equal(found, whole)) << found;
  EXPECT_TRUE(mail.is_empty());
}

TEST(GatherPartsTest, PutsUnevenPartsTogether) {
  gathers({0, 1, 2}, 0);
  gathers({0, 1, 2}, 1);
}

TEST(GatherPartsTest, ARankMayHoldSeveralPartsOrNone) {
  gathers({0, 2, 2}, 0);
  gathers({1, 1, 2}, 1);
  gathers({0, 0, 0}, 0);
}

TEST(ShareOutTest, EachNextTensorGoesToTheOneWithLeast) {
  EXPECT_THAT(share_out({10, 10, 30, 5, 5}, 2, 1), ElementsAre(0, 1, 0, 1, 1));
}

TEST(ShareOutTest, SmallStatesAreNotSplit) {
  EXPECT_THAT(share_out({10, 10, 10}, 4, 100), Each(0));
  EXPECT_THAT(share_out({100, 100, 100}, 64, 100), Each(Le(2)));
  EXPECT_THAT(share_out({}, 4, 100), ElementsAre());
}

TEST(DtypesTest, WhatIsSavedIsReadAgain) {
  for (const auto type : {at::kFloat, at::kDouble, at::kInt, at::kLong})
    EXPECT_EQ(dtype_of(dtype_name(type), "f"), type);
  EXPECT_ANY_THROW(dtype_name(at::kHalf));
  EXPECT_EQ(dtype_of("bfloat16", "f"), at::kBFloat16);
  EXPECT_ANY_THROW(dtype_of("complex64", "f"));
}

}  // namespace
}  // namespace dtrain::state
