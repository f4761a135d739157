#include "parallel/agreement.hpp"

#include <gtest/gtest.h>

#include "parallel/job_of_test.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

TEST(AgreementTest, EqualValuesPassAndOneDifferentRankFailsAll) {
  JobOfTest job;
  const ErrorContext context{.subject = "value", .advice = "make them equal"};
  for (const std::uint64_t value : {0ULL, 1ULL, 0x8000000000000000ULL, ~0ULL}) {
    EXPECT_NO_THROW(require_agreement(job.data(), value, "they differ", context));
  }
  if (job.data().size() == 1) return;
  const bool last = job.rank() == job.data().size() - 1;
  EXPECT_THROW(require_agreement(job.data(), last ? 1 : 2, "they differ", context), Error);
  EXPECT_THROW(require_agreement(job.data(), last ? ~0ULL : 0, "they differ", context), Error);
}

TEST(AgreementTest, AfterABroadcastAllHoldTheFirstRanksParameters) {
  JobOfTest job;
  auto values = at::full({1001}, job.rank() + 0.5, at::kFloat);
  broadcast_parameters(job.data(), values);
  EXPECT_TRUE(at::equal(values, at::full({1001}, 0.5, at::kFloat)));
}

TEST(AgreementTest, OneFlippedBitChangesTheHash) {
  auto values = at::ones({1000}, at::kFloat);
  const auto before = hash_of(values);
  values[777] = 1.0000001F;
  EXPECT_NE(before, hash_of(values));
}

}  // namespace
}  // namespace dtrain::parallel
