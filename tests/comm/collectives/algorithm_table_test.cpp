#include "comm/collectives/algorithm_table.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "comm/job.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::comm {
namespace {

Measurement took(std::size_t bytes, const std::string& algorithm, double seconds) {
  return {.group = "data",
          .operation = "all_reduce",
          .algorithm = algorithm,
          .ranks = 4,
          .bytes = bytes,
          .median_s = seconds};
}

TEST(AlgorithmTableTest, TakesTheFastestOfEachSizeUpToHalfWayToTheNext) {
  const auto table = AlgorithmTable::fastest({took(4096, "tree", 1), took(4096, "ring", 2),
                                              took(65536, "tree", 3), took(65536, "hierarchical", 2.5),
                                              took(1 << 20, "ring", 9), took(1 << 20, "hierarchical", 8)});
  EXPECT_EQ(table.to_string(), "16384 tree, 1048576 hierarchical");
  EXPECT_EQ(table.at(1), Algorithm::tree);
  EXPECT_EQ(table.at(16384), Algorithm::tree);
  EXPECT_EQ(table.at(16385), Algorithm::hierarchical);
  EXPECT_EQ(table.at(std::size_t{1} << 40), Algorithm::hierarchical);
  EXPECT_EQ(AlgorithmTable().at(1), std::nullopt);
}

TEST(AlgorithmTableTest, ReadsWhatItWroteAndNothingElse) {
  const AlgorithmTable table({{4096, Algorithm::tree}, {1 << 20, Algorithm::ring}});
  EXPECT_EQ(AlgorithmTable::parse(table.to_string()), table);
  for (const char* text : {"", "4096", "4096 ", "tree", "4096 magic", "4096 mpi", "-1 ring", "8 ring, 8 tree",
                           "9 ring, 8 tree", "8 ring,9 tree", "99999999999999999999999 ring"}) {
    EXPECT_EQ(AlgorithmTable::parse(text), std::nullopt) << text;
  }
}

TEST(AlgorithmTableTest, IsMeasuredOnceAndThenRead) {
  Job job(2);
  if (job.cluster.node_count() < 2) GTEST_SKIP() << "one rank needs no all_reduce";
  const test::ScratchFolder folder;
  const std::string cache = job.world.broadcast(folder.file("new/all_reduce"), 0);
  const AlgorithmTable measured = cached_table(job.groups, job.world, cache, "here");
  EXPECT_TRUE(measured.at(1).has_value());
  EXPECT_EQ(job.world.broadcast(measured.to_string(), 0), measured.to_string());  // the same on all ranks
  EXPECT_EQ(cached_table(job.groups, job.world, cache, "here"), measured);
  // What the file says counts, so nothing was measured.
  if (job.rank() == 0) std::ofstream(cache, std::ios::app) << "there: 77 ring\n";
  job.world.barrier();
  EXPECT_EQ(cached_table(job.groups, job.world, cache, "there").to_string(), "77 ring");
  job.groups.use(AlgorithmTable({{1 << 20, Algorithm::ring}}));
  std::vector<float> values(1000, 1);
  job.groups.data().all_reduce(Buffer::of(std::span(values)), ReduceOp::sum).wait();
  EXPECT_EQ(values[999], static_cast<float>(job.size()));
  job.world.barrier();  // the folder of rank 0 goes
}

TEST(MeasurementTest, BusBandwidthIsThatOfNcclTests) {
  Measurement one = took(1000, "ring", 1e-6);
  EXPECT_DOUBLE_EQ(one.algorithm_bytes_per_s(), 1e9);
  EXPECT_DOUBLE_EQ(one.bus_bytes_per_s(), 1.5e9);
  for (const char* operation : {"reduce_scatter", "all_gather", "all_to_all"}) {
    one.operation = operation;
    EXPECT_DOUBLE_EQ(one.bus_bytes_per_s(), 0.75e9) << operation;
  }
  for (const char* operation : {"broadcast", "send_receive"}) {
    one.operation = operation;
    EXPECT_DOUBLE_EQ(one.bus_bytes_per_s(), 1e9) << operation;
  }
}

TEST(MeasurementTest, EveryCollectiveOfEachSizeOnce) {
  Job job(2);
  if (job.size() == 1) GTEST_SKIP() << "one rank needs no collectives";
  const MeasurementPlan plan = {.sizes = {1024, 4 << 20}, .rounds = 1, .turn_s = 0};
  const auto reduced =
      measure_all_reduce(job.groups.world(), plan, {Algorithm::ring, Algorithm::hierarchical});
  EXPECT_EQ(reduced.size(), 4U);
  const auto others = measure_collectives(job.groups.world(), plan);
  EXPECT_EQ(others.size(), 10U);
  for (const auto& one : others) {
    EXPECT_GT(one.median_s, 0);
    EXPECT_LE(one.least_s, one.median_s);
    EXPECT_LE(one.median_s, one.greatest_s);
    EXPECT_EQ(one.ranks, job.size());
  }
}

}  // namespace
}  // namespace dtrain::comm
