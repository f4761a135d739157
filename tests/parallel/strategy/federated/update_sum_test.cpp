#include "parallel/strategy/federated/update_sum.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/error.hpp"
#include "parallel/job_of_test.hpp"

namespace dtrain::parallel {
namespace {

/// The update [n] of a client.
at::Tensor update_of(int client, std::int64_t n, at::ScalarType type) {
  return (at::sin(at::arange(n, at::kDouble) * (client + 1.7)) * (client + 0.1)).to(type);
}

TEST(UpdateSumTest, HasTheSameBitsWhateverRankAddsWhichClientAndWhen) {
  JobOfTest job;
  constexpr std::int64_t kValues = 1000;
  constexpr int kClients = 12;
  for (const auto type : {at::kFloat, at::kDouble}) {
    UpdateSum one(job.data(), kValues);
    UpdateSum other(job.data(), kValues);
    one.begin();
    other.begin();
    for (int k = 0; k < kClients; ++k) {
      const int backwards = kClients - 1 - k;
      if (k % job.data().size() == job.rank()) one.add(update_of(k, kValues, type), (k + 1) / 78.0);
      if (job.rank() == 0) other.add(update_of(backwards, kValues, type), (backwards + 1) / 78.0);
    }
    one.exchange();
    other.exchange();
    auto found = at::empty({kValues}, type);
    auto expected = at::empty({kValues}, type);
    one.take(found, 2);
    other.take(expected, 2);
    EXPECT_TRUE(found.equal(expected));
    auto exact = at::zeros({kValues}, at::kDouble);
    for (int k = 0; k < kClients; ++k)
      exact.add_(update_of(k, kValues, type).to(at::kDouble), 2 * (k + 1) / 78.0);
    const double rounding = type == at::kFloat ? 1e-6 : 2 * kClients * 0x1p-41;
    EXPECT_LT((found.to(at::kDouble) - exact).abs().max().item<double>(), rounding);
  }
}

TEST(UpdateSumTest, CountsAndNumbersAddUpOverTheRanks) {
  JobOfTest job;
  UpdateSum sum(job.data(), 5);
  sum.begin();
  sum.add_count(0, job.rank() + 1);
  sum.add_number(2, 0.25);
  sum.exchange();
  const int ranks = job.data().size();
  EXPECT_EQ(sum.count(0), ranks * (ranks + 1) / 2);
  EXPECT_DOUBLE_EQ(sum.number(2), 0.25 * ranks);
  sum.begin();
  EXPECT_EQ(sum.count(0), 0);
  EXPECT_THROW(sum.add_number(2, UpdateSum::kLargest), Error);
  EXPECT_THROW(sum.add(at::ones({6}), 1), Error);
}

TEST(UpdateSumTest, SaysWhatASumCannotHold) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    EXPECT_TRUE(UpdateSum::is_summable(at::ones({9}, type)));
    EXPECT_TRUE(UpdateSum::is_summable(at::empty({0}, type)));
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity(),
          UpdateSum::kLargest, -2 * UpdateSum::kLargest}) {
      auto values = at::ones({9}, type);
      values[4] = bad;
      EXPECT_FALSE(UpdateSum::is_summable(values)) << bad;
    }
  }
}

}  // namespace
}  // namespace dtrain::parallel
