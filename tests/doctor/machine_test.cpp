// Libraries, shared memory and GPUs of a node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "doctor/gpus.hpp"
#include "doctor/libraries.hpp"
#include "doctor/memory.hpp"

namespace dtrain::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

void expect(const Finding& finding, Level level, const std::string& text, const std::string& remedy) {
  EXPECT_EQ(finding.level, level) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
}

Finding judged(const std::string& built, const std::string& loaded, Match match) {
  return judge_library(
      {.what = "X", .built = built, .loaded = loaded, .copies = {"/usr/lib/libx.so"}, .match = match});
}

TEST(LibrariesTest, ReportsTwoCopies) {
  const Finding finding = judge_library({.what = "NCCL",
                                         .built = "2.28.9",
                                         .loaded = "2.28.9",
                                         .copies = {"/a/libnccl.so.2", "/b/libnccl.so.2"}});
  expect(finding, Level::problem, "2 copies are loaded: /a/libnccl.so.2 and /b/libnccl.so.2",
         "unset LD_LIBRARY_PATH");
}

TEST(LibrariesTest, ReportsAVersionThatDoesNotFitTheHeaders) {
  expect(judged("Open MPI v5.0.11", "Open MPI v4.1.4", Match::not_older), Level::problem,
         "Open MPI v4.1.4 is loaded but dtrain was built with Open MPI v5.0.11", "build dtrain again");
  EXPECT_EQ(judged("Open MPI v4.1.4", "MPICH 4.1.4", Match::not_older).level, Level::problem);
  EXPECT_EQ(judged("2.28.9", "2.27.9", Match::not_older).level, Level::problem);
  EXPECT_EQ(judged("2.28.9", "3.0.0", Match::not_older).level, Level::problem);
  EXPECT_EQ(judged("2.11.0", "2.12.0", Match::same_minor).level, Level::problem);
  EXPECT_EQ(judged("1.10.8", "1.10.9", Match::exact).level, Level::problem);
}

TEST(LibrariesTest, AcceptsAVersionThatFits) {
  expect(judged("Open MPI v5.0.9", "Open MPI v5.0.11", Match::not_older), Level::good, "/usr/lib/libx.so",
         "");
  EXPECT_EQ(judged("2.11.0", "2.11.1", Match::same_minor).level, Level::good);
  EXPECT_EQ(judged("13.0", "13.1", Match::not_older).level, Level::good);
  EXPECT_EQ(judged("13.1", "13.0", Match::driver).level, Level::good);
  EXPECT_EQ(judged("13.0", "14.0", Match::driver).level, Level::good);
  expect(judged("13.0", "12.9", Match::driver), Level::problem, "12.9 is loaded", "for CUDA 13.0 or newer");
  expect(judge_library({.what = "HDF5", .built = "1.10.8", .loaded = "1.10.8", .match = Match::exact}),
         Level::good, "linked in", "");
}

TEST(LibrariesTest, FindsWhatThisProcessHasLoaded) {
  EXPECT_THAT(loaded_copies("libhdf5"), SizeIs(1));
  EXPECT_THAT(loaded_copies("libnosuchthing"), IsEmpty());
  EXPECT_EQ(judge_library(hdf5_facts()).level, Level::good);
  EXPECT_EQ(judge_library(mpi_facts()).level, Level::good);
}

TEST(LibrariesTest, ReportsAnMpiForOneThread) {
  expect(judge_threads(MPI_THREAD_SERIALIZED), Level::problem, "only one thread", "MPI_THREAD_MULTIPLE");
  EXPECT_EQ(judge_threads(MPI_THREAD_MULTIPLE).level, Level::good);
}

TEST(LibrariesTest, NotesThatALostRankWouldEndTheJob) {
  expect(judge_recovery(true, false), Level::note, "off", "--with-ft ulfm");
  expect(judge_recovery(false, false), Level::note, "no ULFM", "Open MPI 5");
  EXPECT_EQ(judge_recovery(true, true).level, Level::good);
}

TEST(SharedMemoryTest, ReportsLessThanTheRanksNeed) {
  expect(judge_shared_memory({.total_bytes = 64 << 20, .free_bytes = 10 << 20, .needed_bytes = 16 << 20}),
         Level::problem, "10 MiB of 64 MiB free in /dev/shm, the ranks of a node need 16 MiB",
         "--shm-size=2g");
  expect(judge_shared_memory({.needed_bytes = 16 << 20}), Level::problem, "there is no /dev/shm",
         "mount a tmpfs");
}

TEST(SharedMemoryTest, NotesThatALargeModelFindsNoRoom) {
  const SharedMemoryFacts docker{.total_bytes = 64 << 20, .free_bytes = 64 << 20, .needed_bytes = 16 << 20};
  expect(judge_shared_memory(docker), Level::note, "no room for a large model", "--shm-size=2g");
  EXPECT_EQ(
      judge_shared_memory({.total_bytes = 1L << 30, .free_bytes = 1L << 30, .needed_bytes = 16 << 20}).level,
      Level::good);
  EXPECT_EQ(judge_shared_memory({.total_bytes = 64 << 20, .free_bytes = 64 << 20}).level, Level::good)
      << "one rank shares nothing";
}

TEST(SharedMemoryTest, ReportsContainersThatPartTheRanksOfAMachine) {
  auto cluster = topology::uniform_cluster(3, 1);
  EXPECT_THAT(judge_sharing(cluster), IsEmpty());
  for (auto& place : cluster.ranks) place.machine = place.node == 2 ? 2 : 0;
  const auto findings = judge_sharing(cluster);
  ASSERT_THAT(findings, SizeIs(1));
  expect(findings[0], Level::problem, "ranks 0, 1 run on one machine", "--ipc=host");
}

TEST(GpusTest, ReportsRanksOnOneGpu) {
  auto cluster = topology::uniform_cluster(2, 2);
  EXPECT_THAT(judge_gpus(cluster, true), IsEmpty());
  for (auto& place : cluster.ranks) {
    place.gpu = place.local_rank;
    place.device_uuid = place.node == 0 ? "GPU-" + std::to_string(place.local_rank) : "GPU-0";
  }
  const auto findings = judge_gpus(cluster, true);
  ASSERT_THAT(findings, SizeIs(1));
  expect(findings[0], Level::note, "ranks 2, 3 share GPU 0 of node1", "one rank per GPU");
  expect(judge_gpus(cluster, false)[0], Level::note, "node1 with --device cuda", "one rank per GPU");
}

TEST(GpusTest, ReportsThatThereIsNone) {
  expect(judge_driver({.driver = false, .uuids = {}}, true), Level::problem, "libcuda.so.1",
         "--gpus-per-node");
  expect(judge_driver({.driver = true, .uuids = {}}, true), Level::problem, "there is a driver",
         "--device cpu");
  EXPECT_EQ(judge_driver({.driver = false, .uuids = {}}, false).level, Level::good);
  EXPECT_EQ(judge_driver({.driver = true, .uuids = {"GPU-1"}}, true).level, Level::good);
}

}  // namespace
}  // namespace dtrain::doctor
