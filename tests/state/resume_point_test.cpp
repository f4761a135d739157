#include "state/resume_point.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/writer.hpp"
#include "core/error.hpp"
#include "h5/library.hpp"

namespace dtrain::state {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Checkpoints of two parts each, in a folder that all ranks see.
class ResumePointTest : public testing::Test {
 protected:
  ResumePointTest() {
    std::string name;
    if (world.rank() == 0) {
      std::string pattern = (fs::temp_directory_path() / "dtrain-test-XXXXXX").string();
      name = mkdtemp(pattern.data());
    }
    folder = world.broadcast(name, 0);
  }
  ~ResumePointTest() override {
    world.barrier();
    if (world.rank() == 0) fs::remove_all(folder);
  }

  void save(std::int64_t step, const checkpoint::BestSoFar& best) {
    if (world.rank() == 0) {
      const std::vector<float> values = {1, 2, 3};
      const checkpoint::Saving saving(folder, step);
      saving.begin();
      std::vector<std::string> parts;
      for (int writer = 0; writer < 2; ++writer) {
        const checkpoint::TensorRef tensor{.slice = Slice::whole(writer == 0 ? "weight" : "bias", {3}),
                                           .data = values.data()};
        parts.push_back(saving.write_part(writer, std::span(&tensor, 1), library));
      }
      checkpoint::CheckpointInfo info;
      info.step = step;
      info.epoch = 1;
      info.best = best;
      info.model = "mlp";
      info.micro_batches = 1;
      saving.commit(info, parts);
      if (best.step == step) checkpoint::mark(folder, checkpoint::kBest, step);
    }
    world.barrier();
  }
  void damage(std::int64_t step) {
    if (world.rank() == 0)
      std::ofstream(folder / checkpoint::step_folder(step) / "part-00001.h5", std::ios::app) << "x";
    world.barrier();
  }

  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  h5::Library library;
  fs::path folder;
};

TEST_F(ResumePointTest, RanksShareTheVerdictOnACheckpoint) {
  save(10, {});
  EXPECT_NO_THROW(check_together(folder / "step-00000010", world));
  damage(10);
  std::string said;
  try {
    check_together(folder / "step-00000010", world);
  } catch (const Error& error) {
    said = error.what();
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
  }
  EXPECT_THAT(said, HasSubstr("part-00001.h5"));
  EXPECT_EQ(world.broadcast(said, 0), said);
}

TEST_F(ResumePointTest, AValidBestStays) {
  save(10, {.step = 10, .loss = 0.5});
  save(20, {.step = 10, .loss = 0.5});
  const auto point = newest_valid(folder, world);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->info.step, 20);
  EXPECT_EQ(point->info.best.step, 10);
  EXPECT_EQ(point->forgotten_best, "");
}

TEST_F(ResumePointTest, ABestThatIsNotThereGivesWayToTheOneBefore) {
  save(10, {.step = 10, .loss = 0.5});
  save(20, {.step = 15, .loss = 0.4});  // which was being written when a rank was lost
  const auto point = newest_valid(folder, world);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->info.best.step, 10);
  EXPECT_EQ(point->info.best.loss, 0.5);
  EXPECT_THAT(point->forgotten_best, HasSubstr("step-00000015"));
}

TEST_F(ResumePointTest, ADamagedBestGivesWayToTheStateItself) {
  save(10, {.step = 10, .loss = 0.5});
  save(20, {.step = 10, .loss = 0.5});
  damage(10);
  const auto point = newest_valid(folder, world);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->info.best.step, 20);
  EXPECT_TRUE(std::isnan(point->info.best.loss)) << "any epoch is better";
  EXPECT_THAT(point->forgotten_best, HasSubstr("part-00001.h5"));
  world.barrier();
  EXPECT_EQ(fs::read_symlink(folder / "best"), "step-00000020");
}

checkpoint::DatasetIdentity dataset_of(std::int64_t samples) {
  return {.samples = {{"train", samples}}, .sha256 = "other"};
}

// 100 samples in steps of 32 are 4 steps an epoch: step 6 is at sample 64 of epoch 2.
TEST(SameDatasetTest, WithoutAHashThePositionMustBeOneOfTheDataset) {
  const ResumePoint middle{.folder = "old", .info = {.step = 6, .epoch = 2, .position_samples = 64}};
  const ResumePoint end{.folder = "old", .info = {.step = 8, .epoch = 2, .position_samples = 100}};
  for (const auto* point : {&middle, &end}) {
    EXPECT_NO_THROW(check_same_dataset(*point, dataset_of(100), "digits", 32));
    for (const std::int64_t samples : {40, 63, 96, 99, 129, 1000}) {
      if (point == &middle && samples == 99) continue;  // which the middle of an epoch cannot tell
      try {
        check_same_dataset(*point, dataset_of(samples), "digits", 32);
        ADD_FAILURE() << samples << " samples, step " << point->info.step;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::data);
        EXPECT_THAT(error.what(), HasSubstr("the dataset digits"));
        EXPECT_THAT(error.what(), HasSubstr(std::to_string(samples) + " to train on"));
        EXPECT_THAT(error.advice(), HasSubstr("--init-from old"));
      }
    }
  }
  EXPECT_THROW(check_same_dataset(middle, dataset_of(40), "digits", 0), Error)
      << "it would read before the array";
  EXPECT_NO_THROW(check_same_dataset(middle, dataset_of(1000), "digits", 0));
}

}  // namespace
}  // namespace dtrain::state
