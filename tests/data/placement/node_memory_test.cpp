// The ranks of a node as processes: one copy of a split in shared memory, loaded together. Calls of the C
// library are taken over here, to look at the moment and to fail on request.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "core/error.hpp"
#include "data/import/stage.hpp"
#include "data/sampler.hpp"
#include "h5/library.hpp"

namespace {

std::vector<nlink_t> names_when_reserved;
int names_made = 0;
int reserving_fails_with = 0;

}  // namespace

extern "C" int posix_fallocate(int fd, off_t offset, off_t bytes) noexcept {
  struct stat facts = {};
  ::fstat(fd, &facts);
  names_when_reserved.push_back(facts.st_nlink);
  if (reserving_fails_with != 0) return reserving_fails_with;
  return ::fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

extern "C" int shm_open(const char* name, int flags, mode_t mode) noexcept {
  ++names_made;
  using Open = int (*)(const char*, int, mode_t);
  static const auto real = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "shm_open"));
  return real(name, flags, mode);
}

namespace dtrain::data {
namespace {

int rank_of_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int size_of_world() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::vector<std::string> exchange(const std::string& mine) {
  std::array<char, 1000> text{};
  mine.copy(text.data(), text.size() - 1);
  std::vector<std::array<char, 1000>> all(static_cast<std::size_t>(size_of_world()));
  MPI_Allgather(text.data(), 1000, MPI_CHAR, all.data(), 1000, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (const auto& one : all) texts.emplace_back(one.data());
  return texts;
}

/// Three images per rank, staged by rank 0, and the ranks as a node.
struct Node {
  Node() {
    int id = static_cast<int>(::getpid());
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    folder = std::filesystem::temp_directory_path() / ("dtrain-node-memory-" + std::to_string(id));
    const SyntheticSpec spec{
        .shape = {1, 8, 8}, .train_samples = 40, .validation_samples = 4, .test_samples = 4};
    if (rank_of_world() == 0) stage_synthetic({.name = "images", .data_root = folder}, spec, library);
    MPI_Barrier(MPI_COMM_WORLD);
    team = {.local_rank = rank_of_world(),
            .local_size = size_of_world(),
            .token = std::to_string(id),
            .exchange = exchange};
  }
  ~Node() {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_of_world() == 0) std::filesystem::remove_all(folder);
  }
  void read() {
    Dataset::open(folder / "images", library)
        .source("train", {.staging = ReadOptions::Staging::memory, .team = team});
  }

  h5::Library library;
  std::filesystem::path folder;
  NodeTeam team;
};

// A rank that is killed while others make memory would leave the name.
TEST(NodeMemoryTest, HasNoNameAtAnyTime) {
  Node node;
  names_made = 0;
  names_when_reserved.clear();
  EXPECT_NO_THROW(node.read());
  EXPECT_EQ(names_made, 0);
  EXPECT_EQ(names_when_reserved, std::vector<nlink_t>(rank_of_world() == 0 ? 1 : 0, 0));
}

TEST(NodeMemoryTest, WithoutRoomAllRanksThrowTheSameSentence) {
  Node node;
  reserving_fails_with = ENOSPC;  // on rank 0, which reserves for all
  try {
    node.read();
    ADD_FAILURE() << "there is no room";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_EQ(error.subject(), "--staging memory");
    EXPECT_NE(error.problem().find("which failed: No space left"), std::string::npos) << error.problem();
  }
  reserving_fails_with = 0;
}

TEST(NodeMemoryTest, EveryRankReadsTheWholeSplitFromTheOneCopy) {
  const int rank = rank_of_world();
  const int size = size_of_world();
  int id = static_cast<int>(::getpid());
  MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
  const auto folder = std::filesystem::temp_directory_path() / ("dtrain-node-memory-" + std::to_string(id));
  const SyntheticSpec spec{
      .shape = {1, 8, 8}, .train_samples = 997, .validation_samples = 10, .test_samples = 10};
  h5::Library library;
  if (rank == 0) stage_synthetic({.name = "images", .data_root = folder, .shards = 3}, spec, library);
  MPI_Barrier(MPI_COMM_WORLD);

  const NodeTeam team{
      .local_rank = rank, .local_size = size, .token = std::to_string(id), .exchange = exchange};
  const Dataset dataset = Dataset::open(folder / "images", library);
  const auto source = dataset.source("train", {.staging = ReadOptions::Staging::memory, .team = team});
  // The files may go: what is read now is the copy.
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::filesystem::remove_all(folder);
  MPI_Barrier(MPI_COMM_WORLD);

  const auto ids = epoch_order(997, Order::shuffled, 1, 1);
  std::array<HostArray, 4> arrays;
  source->gather(ids, arrays[0], arrays[1]);
  synthetic_dataset(spec).source("train")->gather(ids, arrays[2], arrays[3]);
  EXPECT_TRUE(std::ranges::equal(arrays[0].as<std::uint8_t>(), arrays[2].as<std::uint8_t>()));
  EXPECT_TRUE(std::ranges::equal(arrays[1].as<std::int64_t>(), arrays[3].as<std::int64_t>()));
}

}  // namespace
}  // namespace dtrain::data
