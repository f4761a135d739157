#include "data/placement/staging.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "data/folder.hpp"
#include "data/import/stage.hpp"
#include "data/sampler.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr int kRanks = 3;

/// Runs `action` as each rank of one node: threads stand in for processes.
template <typename Action>
void as_node(const std::string& token, Action action) {
  std::barrier meeting(kRanks);
  std::vector<std::string> said(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      action(NodeTeam{.local_rank = rank,
                      .local_size = kRanks,
                      .token = token,
                      .exchange = [&, rank](const std::string& mine) {
                        said[static_cast<std::size_t>(rank)] = mine;
                        meeting.arrive_and_wait();
                        auto all = said;
                        meeting.arrive_and_wait();  // all have read it
                        return all;
                      }});
    });
  for (std::thread& rank : ranks) rank.join();
}

std::vector<std::uint8_t> all_inputs(const Dataset& dataset, const ReadOptions& options) {
  HostArray inputs;
  HostArray targets;
  const auto ids = epoch_order(dataset.info().samples("train"), Order::shuffled, 1, 1);
  dataset.source("train", options)->gather(ids, inputs, targets);
  const auto bytes = inputs.as<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

class StagingTest : public ::testing::Test {
 protected:
  StagingTest() {
    stage_synthetic({.name = "images", .data_root = folder.path(), .shards = 2},
                    {.shape = {1, 8, 8}, .train_samples = 500, .validation_samples = 50, .test_samples = 50},
                    library);
    token = folder.path().filename().string();
    std::filesystem::create_directory(folder / "local");
  }
  TemporaryFolder folder;
  h5::Library library;
  std::string token;
};

std::ptrdiff_t entries(const std::filesystem::path& path) {
  return std::distance(std::filesystem::directory_iterator(path), {});
}

/// The dataset's copy in the user's own folder in `local`.
std::filesystem::path only_copy(const std::filesystem::path& local) {
  std::vector<std::filesystem::path> copies;
  for (const auto& own : std::filesystem::directory_iterator(local))
    for (const auto& entry : std::filesystem::directory_iterator(own.path()))
      if (entry.is_directory()) copies.push_back(entry.path());
  EXPECT_EQ(copies.size(), 1U);
  return copies.empty() ? std::filesystem::path() : copies.front();
}

unsigned mode_of(const std::filesystem::path& path) {
  return static_cast<unsigned>(std::filesystem::status(path).permissions()) & 07777U;
}

TEST_F(StagingTest, OneCopyPerNodeHoldsWhatTheFilesHold) {
  const auto expected = all_inputs(Dataset::open(folder / "images", library), {});
  std::array<bool, kRanks> equal{};
  as_node(token, [&](const NodeTeam& team) {
    const Dataset dataset = Dataset::open(folder / "images", library);
    equal[team.local_rank] =
        all_inputs(dataset, {.staging = ReadOptions::Staging::memory, .team = team}) == expected;
  });
  EXPECT_THAT(equal, ::testing::Each(true));
}

TEST_F(StagingTest, DamageMakesEveryRankOfTheNodeThrow) {
  const auto file = folder / "images/train-00001-of-00002.h5";
  std::string bytes = testing::read_bytes(file);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  // The last bytes of the file are the targets' or the inputs' chunk: either is checked.
  testing::write_bytes(file, bytes);
  std::array<std::string, kRanks> words;
  as_node(token, [&](const NodeTeam& team) {
    const Dataset dataset = Dataset::open(folder / "images", library);
    words[team.local_rank] =
        error_of([&] {
          dataset.source("train", {.staging = ReadOptions::Staging::memory, .team = team});
        }).what();
  });
  EXPECT_THAT(words, ::testing::Each(HasSubstr("is damaged")));
  EXPECT_THAT(words, ::testing::Each(words[0]));  // so that it is printed once
}

TEST_F(StagingTest, AFailedLocalCopyMakesEveryRankThrowTheSame) {
  const auto file = folder / "images/train-00001-of-00002.h5";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  std::array<std::string, kRanks> words;
  as_node(token, [&](const NodeTeam& team) {
    const Dataset dataset = Dataset::open(folder / "images", library);
    words[team.local_rank] =
        error_of([&] { copy_to_local(dataset, folder / "local", team, library); }).what();
  });
  EXPECT_THAT(words, ::testing::Each(HasSubstr("train-00001-of-00002.h5: does not have the SHA-256")));
  EXPECT_THAT(words, ::testing::Each(words[0]));
  EXPECT_EQ(entries(folder / "local"), 0);  // neither half a copy nor a notice
}

TEST_F(StagingTest, TheLocalCopyIsMadeOnceAndUsedAgain) {
  const auto local = folder / "local";
  const auto expected = all_inputs(Dataset::open(folder / "images", library), {});
  std::array<bool, kRanks> equal{};
  std::filesystem::file_time_type first{};
  for (int round = 0; round < 2; ++round) {
    as_node(token, [&](const NodeTeam& team) {
      const Dataset dataset =
          copy_to_local(Dataset::open(folder / "images", library), local, team, library).dataset;
      equal[team.local_rank] =
          dataset.folder().parent_path().parent_path() == local && all_inputs(dataset, {}) == expected;
    });
    EXPECT_THAT(equal, ::testing::Each(true));
    ASSERT_EQ(entries(local), 1);
    const auto copy = only_copy(local);
    const auto written = std::filesystem::last_write_time(copy / "train-00000-of-00002.h5");
    if (round == 1) {
      EXPECT_EQ(written, first);
    }
    first = written;
  }
}

TEST_F(StagingTest, EachRankCopiesItsShareWhateverTheNodeBeginsWith) {
  stage_synthetic({.name = "many", .data_root = folder.path(), .shards = 7},
                  {.shape = {1, 4, 4}, .train_samples = 70, .validation_samples = 20, .test_samples = 20},
                  library);
  const auto expected = all_inputs(Dataset::open(folder / "many", library), {});
  for (int node = 0; node < 3; ++node) {
    const auto local = folder / ("local-of-" + std::to_string(node));
    std::filesystem::create_directory(local);
    std::array<bool, kRanks> equal{};
    as_node(token, [&](NodeTeam team) {
      team.node = node;
      team.nodes = 3;
      const auto copy = copy_to_local(Dataset::open(folder / "many", library), local, team, library);
      equal[team.local_rank] = copy.in_place.empty() && all_inputs(copy.dataset, {}) == expected;
    });
    EXPECT_THAT(equal, ::testing::Each(true));
    EXPECT_EQ(entries(local), 1);
    EXPECT_EQ(entries(only_copy(local)), entries(folder / "many"));
  }
}

TEST_F(StagingTest, TheCopyLiesInAFolderOfTheUsersOwnThatOthersCannotEnter) {
  const auto local = folder / "local";
  const auto secret = folder / "images/train-00001-of-00002.h5";
  std::filesystem::permissions(secret, std::filesystem::perms(0640));
  std::filesystem::permissions(folder / "images/train-00000-of-00002.h5", std::filesystem::perms(0644));
  const mode_t before = ::umask(0);
  const auto copy =
      copy_to_local(Dataset::open(folder / "images", library), local, {}, library).dataset.folder();
  ::umask(before);
  EXPECT_EQ(mode_of(copy.parent_path()), 0700U);
  EXPECT_EQ(mode_of(copy / "train-00001-of-00002.h5"), 0600U);
  EXPECT_EQ(mode_of(copy / "train-00000-of-00002.h5"), 0644U);
  EXPECT_THAT(copy.parent_path().filename().string(), ::testing::MatchesRegex("dtrain-[0-9]+-.{6}"));
}

TEST_F(StagingTest, LinksAndFoldersThatOthersLaidAreNotUsed) {
  const auto local = folder / "local";
  const auto trap = folder / "trap";
  std::filesystem::create_directory(trap);
  const std::string prefix = "dtrain-" + std::to_string(::geteuid()) + "-";
  std::filesystem::create_directory_symlink(trap, local / (prefix + "aaaaaa"));
  std::filesystem::create_directory(local / (prefix + "bbbbbb"));  // open to all
  std::filesystem::permissions(local / (prefix + "bbbbbb"), std::filesystem::perms(0777));
  if (::geteuid() == 0) {  // closed, but another user's
    std::filesystem::create_directory(local / (prefix + "cccccc"));
    std::filesystem::permissions(local / (prefix + "cccccc"), std::filesystem::perms(0700));
    ASSERT_EQ(::chown((local / (prefix + "cccccc")).c_str(), 12345, 12345), 0);
  }
  std::array<std::string, kRanks> places;
  as_node(token, [&](const NodeTeam& team) {
    places[team.local_rank] = copy_to_local(Dataset::open(folder / "images", library), local, team, library)
                                  .dataset.folder()
                                  .parent_path()
                                  .filename();
  });
  EXPECT_THAT(places, ::testing::Each(places[0]));
  for (const char* laid : {"aaaaaa", "bbbbbb", "cccccc"}) EXPECT_NE(places[0], prefix + laid);
  EXPECT_EQ(entries(trap), 0);
  EXPECT_EQ(entries(local / (prefix + "bbbbbb")), 0);
}

TEST_F(StagingTest, LinksInTheCopyAreReplacedAndNotWrittenThrough) {
  const auto local = folder / "local";
  const Dataset dataset = Dataset::open(folder / "images", library);
  const auto copy = copy_to_local(dataset, local, {}, library).dataset.folder();
  testing::write_bytes(folder / "precious", "years of work");
  for (const char* name : {"train-00000-of-00002.h5", "train-00000-of-00002.h5.partial", "dataset.json"}) {
    std::filesystem::remove(copy / name);
    std::filesystem::create_symlink(folder / "precious", copy / name);
  }
  EXPECT_EQ(all_inputs(copy_to_local(dataset, local, {}, library).dataset, {}), all_inputs(dataset, {}));
  EXPECT_EQ(testing::read_bytes(folder / "precious"), "years of work");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(copy / "dataset.json")));
}

TEST_F(StagingTest, AFolderInWhichAnybodyMayReplaceOursIsRefused) {
  std::filesystem::permissions(folder / "local", std::filesystem::perms(0777));
  const Dataset dataset = Dataset::open(folder / "images", library);
  const Error error = error_of([&] { copy_to_local(dataset, folder / "local", {}, library); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.what(), HasSubstr("chmod +t"));
  EXPECT_EQ(entries(folder / "local"), 0);
  std::filesystem::permissions(folder / "local", std::filesystem::perms(01777));
  EXPECT_NE(copy_to_local(dataset, folder / "local", {}, library).dataset.folder(), folder / "images");
}

TEST_F(StagingTest, AStickyFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "to give a folder to another user needs root";
  std::filesystem::permissions(folder / "local", std::filesystem::perms(01777));
  ASSERT_EQ(::chown((folder / "local").c_str(), 12345, 12345), 0);
  const Dataset dataset = Dataset::open(folder / "images", library);
  const Error error = error_of([&] { copy_to_local(dataset, folder / "local", {}, library); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.what(), HasSubstr("its owner (uid 12345)"));
  EXPECT_EQ(entries(folder / "local"), 0);
}

TEST_F(StagingTest, ACopyThatWasChangedIsMadeAgain) {
  const auto local = folder / "local";
  const Dataset dataset = Dataset::open(folder / "images", library);
  const auto shard = copy_to_local(dataset, local, {}, library).dataset.folder() / "train-00000-of-00002.h5";
  std::string bytes = testing::read_bytes(shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  testing::write_bytes(shard, bytes);
  copy_to_local(dataset, local, {}, library);
  EXPECT_EQ(testing::read_bytes(shard), testing::read_bytes(folder / "images/train-00000-of-00002.h5"));
}

TEST_F(StagingTest, TheWaitForAnotherJobEndsAndNamesItsProcess) {
  const auto local = folder / "local";
  const Dataset dataset = Dataset::open(folder / "images", library);
  const auto own = copy_to_local(dataset, local, {}, library).dataset.folder().parent_path();
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const int file = ::open((own / "lock").c_str(), O_RDWR | O_CREAT, 0600);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    const char said = ::fcntl(file, F_SETLK, &lock) == 0 ? 'y' : 'n';
    if (::write(ready[1], &said, 1) != 1) ::_exit(1);
    ::alarm(60);
    ::pause();
    ::_exit(0);
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  ASSERT_EQ(said, 'y');
  std::vector<std::string> heard;
  const LockPatience patience{
      .limit_s = 0.3, .silent_s = 0.05, .say = [&](const std::string& text) { heard.push_back(text); }};
  const Error error = error_of([&] { copy_to_local(dataset, local, {}, library, patience); });
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  const std::string process = "process " + std::to_string(other);
  EXPECT_EQ(error.code(), ExitCode::data);
  EXPECT_THAT(error.what(), HasSubstr(process));
  EXPECT_THAT(heard, ::testing::ElementsAre(HasSubstr("waits for " + process)));
  EXPECT_NE(copy_to_local(dataset, local, {}, library, patience).dataset.folder(), folder / "images")
      << "a lock ends with its process";
}

TEST_F(StagingTest, ADatasetsNameIsNoPath) {
  const auto file = folder / "images/dataset.json";
  std::string text = testing::read_bytes(file);
  const std::string plain = "\"name\": \"images\"";
  for (const char* name : {"../outside", "/tmp/outside", "..", "a/b", "a\\u001b[2J", ""}) {
    std::string changed = text;
    changed.replace(changed.find(plain), plain.size(), std::string("\"name\": \"") + name + "\"");
    testing::write_bytes(file, changed);
    const Error error = error_of([&] { Dataset::open(folder / "images", library); });
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_THAT(error.what(), HasSubstr("which is not a plain folder name"));
  }
}

TEST_F(StagingTest, AHalfMadeLocalCopyIsMadeAgain) {
  const auto local = folder / "local";
  const Dataset dataset = Dataset::open(folder / "images", library);
  const auto copy = copy_to_local(dataset, local, {}, library).dataset.folder();
  std::filesystem::remove(copy / "dataset.json");
  testing::write_bytes(copy / "train-00000-of-00002.h5", "half");
  EXPECT_EQ(all_inputs(copy_to_local(dataset, local, {}, library).dataset, {}), all_inputs(dataset, {}));
}

TEST_F(StagingTest, AFolderThatIsNotThereIsNotMade) {
  std::array<std::string, kRanks> words;
  as_node(token, [&](const NodeTeam& team) {
    const Dataset dataset = Dataset::open(folder / "images", library);
    const Error error = error_of([&] { copy_to_local(dataset, folder / "lokal", team, library); });
    EXPECT_EQ(error.code(), ExitCode::usage);
    words[team.local_rank] = error.what();
  });
  EXPECT_THAT(words, ::testing::Each(HasSubstr("lokal: there is no such folder; ")));
  EXPECT_FALSE(std::filesystem::exists(folder / "lokal"));
}

TEST_F(StagingTest, WhereACopyHasNoRoomTheFilesAreReadInPlace) {
  const auto small = folder / "local";
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "mounting a small file system needs root";
  const auto expected = all_inputs(Dataset::open(folder / "images", library), {});
  std::array<bool, kRanks> equal{};
  std::array<std::string, kRanks> words;
  as_node(token, [&](const NodeTeam& team) {
    const auto copy = copy_to_local(Dataset::open(folder / "images", library), small, team, library);
    equal[team.local_rank] =
        copy.dataset.folder() == folder / "images" && all_inputs(copy.dataset, {}) == expected;
    words[team.local_rank] = copy.in_place;
  });
  EXPECT_EQ(entries(small), 0);
  EXPECT_EQ(::umount(small.c_str()), 0);
  EXPECT_THAT(equal, ::testing::Each(true));
  EXPECT_THAT(words[0], HasSubstr("MiB are free, the dataset takes"));
  EXPECT_EQ(words[1] + words[2], "");  // one of them says it
}

TEST_F(StagingTest, AShardThatIsNotTheOneInDatasetJsonIsNotCopied) {
  const auto file = folder / "images/train-00001-of-00002.h5";
  std::string bytes = testing::read_bytes(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  testing::write_bytes(file, bytes);
  const Dataset dataset = Dataset::open(folder / "images", library);
  const Error error = error_of([&] { copy_to_local(dataset, folder / "local", {}, library); });
  EXPECT_EQ(error.code(), ExitCode::data);
  EXPECT_THAT(error.what(), HasSubstr("train-00001-of-00002.h5: does not have the SHA-256"));
}

}  // namespace
}  // namespace dtrain::data
