#include "parallel/step/step_control.hpp"

#include <gtest/gtest.h>

#include "parallel/job_of_test.hpp"

namespace dtrain::parallel {
namespace {

TEST(StepControlTest, EveryFieldIsSummedOverTheRanksAndKeepsItsPlace) {
  JobOfTest job;
  StepControl control(job.data());
  for (int step = 0; step < 3; ++step) {
    const double r = job.rank() + 1 + step;
    const auto [total, requests, next_weight] = control.agree({.loss = r,
                                                               .weight = 10 * r,
                                                               .correct = 100 * r,
                                                               .counted = 7 * r,
                                                               .samples = 8 * r,
                                                               .gradient_squares = 1e3 * r,
                                                               .non_finite = 1e4 * r,
                                                               .micro_batches = 1e5 * r},
                                                              {.stop = 1e6 * r, .save = 1e7 * r}, 1e8 * r);
    const int n = job.data().size();
    const double sum = n * (n + 1) / 2.0 + n * step;
    EXPECT_DOUBLE_EQ(total.loss, sum);
    EXPECT_DOUBLE_EQ(total.weight, 10 * sum);
    EXPECT_DOUBLE_EQ(total.correct, 100 * sum);
    EXPECT_DOUBLE_EQ(total.counted, 7 * sum);
    EXPECT_DOUBLE_EQ(total.samples, 8 * sum);
    EXPECT_DOUBLE_EQ(total.gradient_squares, 1e3 * sum);
    EXPECT_DOUBLE_EQ(total.non_finite, 1e4 * sum);
    EXPECT_DOUBLE_EQ(total.micro_batches, 1e5 * sum);
    EXPECT_DOUBLE_EQ(requests.stop, 1e6 * sum);
    EXPECT_DOUBLE_EQ(requests.save, 1e7 * sum);
    EXPECT_DOUBLE_EQ(next_weight, 1e8 * sum);
  }
}

}  // namespace
}  // namespace dtrain::parallel
