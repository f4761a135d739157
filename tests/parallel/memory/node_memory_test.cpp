#include "parallel/memory/node_memory.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "parallel/job_of_test.hpp"

namespace dtrain::parallel {
namespace {

TEST(NodeMemoryTest, OneRankFillsWhatAllRanksOfANodeSee) {
  JobOfTest job;
  at::Tensor kept;
  {
    NodeMemory memory(job.data(), 1000, at::kDouble);
    EXPECT_EQ(memory.shared(), job.data().size() > 1);
    EXPECT_EQ(memory.fills(), job.rank() == 0);
    memory.take(100);
    kept = memory.take(500);
    EXPECT_EQ(kept.sum().item<double>(), 0.0);
    job.data().barrier().wait();
    if (memory.fills()) kept.fill_(2.0);
    job.data().barrier().wait();
  }
  EXPECT_EQ(kept.sum().item<double>(), 1000.0);  // a tensor keeps the memory
}

TEST(NodeMemoryTest, TakingMoreThanThereIsIsRefused) {
  JobOfTest job;
  NodeMemory memory(job.data(), 100, at::kFloat);
  memory.take(60);
  EXPECT_THROW(memory.take(60), Error);
}

}  // namespace
}  // namespace dtrain::parallel
