#include "comm/groups.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "comm/job.hpp"
#include "comm/shared_memory/segment.hpp"
#include "comm/shared_memory/shared_memory.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "comm/watch/health.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

float sum_over(Group& group, float value) {
  std::vector<float> values(1000, value);
  group.all_reduce(Buffer::of(std::span(values)), ReduceOp::sum).wait();
  return values[999];
}

topology::MeshShape square_mesh(int size) {
  if (size == 8) return {.data = 2, .pipe = 2, .tensor = 2};
  if (size == 4) return {.data = 2, .pipe = 2};
  return {.data = size};
}

TEST(GroupsTest, FollowTheMesh) {
  const int size = Communicator::duplicate(MPI_COMM_WORLD).size();
  Job job(1, {}, square_mesh(size));
  const topology::Mesh mesh(job.cluster, square_mesh(size));
  const auto expected = [&](topology::Axis axis) {
    float sum = 0;
    for (const int rank : mesh.group(job.rank(), axis)) sum += static_cast<float>(1 << rank);
    return sum;
  };
  const auto mine = static_cast<float>(1 << job.rank());
  EXPECT_EQ(sum_over(job.groups.data(), mine), expected(topology::Axis::data));
  EXPECT_EQ(sum_over(job.groups.pipe(), mine), expected(topology::Axis::pipe));
  EXPECT_EQ(sum_over(job.groups.tensor(), mine), expected(topology::Axis::tensor));
  EXPECT_EQ(sum_over(job.groups.world(), mine), static_cast<float>((1 << size) - 1));
  EXPECT_EQ(job.groups.data().name(), "data");
  EXPECT_EQ(job.groups.data().world_rank_of(job.groups.data().rank()), job.rank());
}

TEST(GroupsTest, LeadersAreTheFirstOfEachNode) {
  const int size = Communicator::duplicate(MPI_COMM_WORLD).size();
  const int nodes = size >= 2 ? 2 : 1;
  Job job(nodes);
  const topology::RankPlace& place = job.cluster.ranks[static_cast<std::size_t>(job.rank())];
  EXPECT_EQ(job.groups.is_leader(), place.local_rank == 0);
  EXPECT_EQ(job.groups.node().size(), job.cluster.local_size(place.node));
  if (job.groups.is_leader()) {
    EXPECT_EQ(job.groups.leaders().size(), nodes);
    EXPECT_EQ(sum_over(job.groups.leaders(), 1), static_cast<float>(nodes));
  } else {
    EXPECT_THROW(job.groups.leaders(), Error);
  }
  EXPECT_EQ(sum_over(job.groups.world(), 1), static_cast<float>(size));
}

/// Groups whose operations are in flight together, waited for in another order on each rank.
TEST(GroupsTest, OperationsOfDifferentGroupsDoNotWaitForOneAnother) {
  const int size = Communicator::duplicate(MPI_COMM_WORLD).size();
  for (const Drive drive : {Drive::inline_, Drive::thread}) {
    Job job(size >= 4 ? 2 : 1, {.drive = drive}, square_mesh(size));
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<float>> values(3, std::vector<float>(3000, 1));
      Group* const groups[] = {&job.groups.data(), &job.groups.pipe(), &job.groups.world()};
      std::vector<Handle> handles;
      for (std::size_t g = 0; g < 3; ++g) {
        handles.push_back(groups[g]->all_reduce(Buffer::of(std::span(values[g])), ReduceOp::sum));
      }
      for (std::size_t g = 0; g < 3; ++g) handles[(g + static_cast<std::size_t>(job.rank())) % 3].wait();
      for (std::size_t g = 0; g < 3; ++g) EXPECT_EQ(values[g][2999], static_cast<float>(groups[g]->size()));
    }
  }
}

/// Bytes of /dev/shm that this process has mapped of dtrain's own: of files without a name ("#" and an
/// inode), or named where ranks do not see each other's process ids. MPI's own files have other names.
std::size_t mapped_bytes() {
  std::size_t bytes = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/#") == std::string::npos && line.find("/dev/shm/dtrain-") == std::string::npos)
      continue;
    std::size_t end = 0;
    const auto first = std::stoull(line, &end, 16);
    bytes += std::stoull(line.substr(end + 1), nullptr, 16) - first;
  }
  return bytes;
}

TEST(GroupsTest, TheSharedMemoryOfANodeIsWhatIsAnnounced) {
  const int size = Communicator::duplicate(MPI_COMM_WORLD).size();
  EXPECT_EQ(mapped_bytes(), 0U);
  for (const int nodes : {1, 2}) {
    if (nodes > size) continue;
    const Job job(nodes);  // on a mesh with a data axis only each rank maps all that its node has
    const topology::Mesh mesh(job.cluster, {.data = size});
    const int node = job.cluster.ranks[static_cast<std::size_t>(job.rank())].node;
    EXPECT_EQ(mapped_bytes(), shared_memory_for(job.cluster, mesh, node));
  }
}

/// What the kernel takes for a file of which each of `ranks` has reserved its part.
std::size_t taken_by(int ranks, std::size_t bytes_per_rank) {
  const int fd = ::memfd_create("part by part", 0);
  const auto part = static_cast<off_t>(SharedMemory::reserved_per_rank(bytes_per_rank));
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(::posix_fallocate(fd, rank * part, part), 0);
  struct stat facts = {};
  ::fstat(fd, &facts);
  ::close(fd);
  return static_cast<std::size_t>(facts.st_blocks) * 512;
}

TEST(GroupsTest, WhatIsAnnouncedIsWhatTheKernelTakesOnAFullNode) {
  if (Communicator::duplicate(MPI_COMM_WORLD).size() > 1) GTEST_SKIP() << "one rank is enough";
  for (const int ranks : {2, 64, 192}) {
    const auto cluster = topology::uniform_cluster(1, ranks);
    const auto need = shared_memory_for(cluster, topology::Mesh(cluster, {.data = ranks}), 0);
    EXPECT_EQ(need, 3 * taken_by(ranks, Segment::bytes_per_rank(ranks)) +  // world, data and node
                        taken_by(ranks, Health::bytes_per_rank()) +
                        taken_by(ranks, FlightRecorder::bytes_per_rank()));
    EXPECT_LT(need, std::size_t{64} << 20) << ranks << " ranks in a container";
  }
}

TEST(GroupsTest, RefusesALimitThatLeavesNoTime) {
  for (const double limit_s : {-1.0, 0.0}) EXPECT_THROW(Job(1, {.timeout_s = limit_s}), Error) << limit_s;
}

TEST(CommConfigTest, NamesAreThoseThatAreRead) {
  EXPECT_THROW(parse_backend("gloo"), Error);
  EXPECT_EQ(parse_backend("nccl"), Backend::nccl);
  for (const auto* name : {"auto", "mpi", "nccl"}) EXPECT_EQ(name_of(parse_backend(name)), name);
  for (const auto* name : {"placed", "launched"})
    EXPECT_EQ(topology::name_of(topology::parse_rank_order(name)), name);
}

}  // namespace
}  // namespace dtrain::comm
