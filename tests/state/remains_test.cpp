#include "state/remains.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "models/slicing/slices.hpp"

namespace dtrain::state {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const topology::MeshShape kShape{.data = 2, .pipe = 2, .tensor = 2};  // before the loss

/// The whole sliced tensor of a stage after a step, [5, 3].
at::Tensor whole_at(int pipe, std::int64_t step) {
  return at::arange(15, at::kFloat).reshape({5, 3}).add_(static_cast<double>(100 * step + 50 * pipe));
}

/// Of a layer in two: each stage has two of the four rows, on both ranks of its tensor group.
at::Tensor parted_at(std::int64_t step) {
  return at::arange(12, at::kFloat).reshape({4, 3}).add_(static_cast<double>(-100 * step));
}

/// The part at a place of the mesh: a slice of the rows, what both ranks of a tensor group have, and a part
/// of a layer in two.
HeldPart part_at(int pipe, int tensor, std::int64_t step, bool informed = true) {
  models::HeldSlice slice{
      .whole = {5, 3}, .view = {5, 3}, .dim = 0, .part = part_of(5, tensor, kShape.tensor)};
  const auto held = models::part_of_whole(whole_at(pipe, step), slice, slice.part);
  models::HeldSlice rows{.whole = {4, 3},
                         .view = {4, 3},
                         .dim = 0,
                         .part = part_of(4, pipe, kShape.pipe),
                         .rest = models::HeldSlice::Rest::in_another_layer};
  const auto parted = models::part_of_whole(parted_at(step), rows, rows.part);
  const auto stage = std::to_string(pipe);
  HeldPart part{
      .step = step,
      .where = {.data = 0, .pipe = pipe, .tensor = tensor},
      .tensors = {{"model", "sliced" + stage, held, std::make_shared<models::HeldSlice>(slice)},
                  {"optimizer/momentum", "common" + stage, at::full({2}, static_cast<double>(step)), nullptr},
                  {"model", "parted", parted, std::make_shared<models::HeldSlice>(rows)}}};
  if (informed) {
    part.info.emplace();
    part.info->step = step;
    part.info->epoch = 1;
    part.info->model = "mlp";
    part.info->micro_batches = 1;
  }
  return part;
}

/// The survivors, one to three of them: part i of the model is held by rank i modulo their number.
class RemainsTest : public testing::Test {
 protected:
  RemainsTest() {
    std::string name;
    if (world_.rank() == 0) {
      std::string pattern = (fs::temp_directory_path() / "dtrain-test-XXXXXX").string();
      name = mkdtemp(pattern.data());
    }
    folder_ = world_.broadcast(name, 0);
  }
  ~RemainsTest() override {
    world_.barrier();
    if (world_.rank() == 0) fs::remove_all(folder_);
  }

  bool holds(int index) const { return index % world_.size() == world_.rank(); }
  /// This rank's parts of a step; `without`: the one that is lost.
  void hold(std::int64_t step, int without = -1, bool informed = true) {
    for (int index = 0; index < kShape.model_ranks(); ++index) {
      if (holds(index) && index != without)
        held_.push_back(part_at(index / kShape.tensor, index % kShape.tensor, step, informed));
    }
  }
  Remains save() { return save_remains(held_, kShape, folder_ / "checkpoints", world_, library_); }

  void expect_saved(std::int64_t step) {
    world_.barrier();
    const auto reader = checkpoint::load(folder_ / "checkpoints" / checkpoint::step_folder(step), library_);
    EXPECT_EQ(reader.info().step, step);
    EXPECT_EQ(reader.info().model, "mlp");
    auto parted = at::empty({4, 3}, at::kFloat);
    reader.read("model/parted", "float32", bytes_of(parted));
    EXPECT_TRUE(at::equal(parted, parted_at(step))) << parted;
    for (int pipe = 0; pipe < kShape.pipe; ++pipe) {
      const auto stage = std::to_string(pipe);
      auto sliced = at::empty({5, 3}, at::kFloat);
      reader.read("model/sliced" + stage, "float32", bytes_of(sliced));
      EXPECT_TRUE(at::equal(sliced, whole_at(pipe, step))) << sliced;
      auto common = at::empty({2}, at::kFloat);
      reader.read("optimizer/momentum/common" + stage, "float32", bytes_of(common));
      EXPECT_TRUE(at::equal(common, at::full({2}, static_cast<double>(step)))) << common;
    }
  }

  static std::span<std::byte> bytes_of(const at::Tensor& values) {
    return {static_cast<std::byte*>(values.data_ptr()), values.nbytes()};
  }

  comm::Communicator world_ = comm::Communicator::duplicate(MPI_COMM_WORLD, 20);
  h5::Library library_;
  fs::path folder_;
  std::vector<HeldPart> held_;
};

TEST_F(RemainsTest, TheNewestStepOfWhichAllPartsAreHeldIsSaved) {
  hold(5);
  hold(7);
  const auto remains = save();
  EXPECT_EQ(remains.problem, "");
  EXPECT_EQ(remains.step, 7);
  expect_saved(7);
}

TEST_F(RemainsTest, AnOlderStepIsSavedWhereAPartOfTheNewestIsLost) {
  hold(5);
  hold(7, 3);
  EXPECT_EQ(save().step, 5);
  expect_saved(5);
  EXPECT_FALSE(fs::exists(folder_ / "checkpoints" / checkpoint::step_folder(7)));
}

TEST_F(RemainsTest, ACopyStandsInForALostPart) {
  hold(7, 3);
  if (world_.rank() == 0) held_.push_back(part_at(1, 1, 7));  // in the memory of a rank with another part
  EXPECT_EQ(save().step, 7);
  expect_saved(7);
}

TEST_F(RemainsTest, OneRankThatKnowsWhereTheRunStoodIsEnough) {
  hold(7, -1, false);
  const bool last = world_.rank() == world_.size() - 1;
  if (last) held_.push_back(part_at(0, 0, 7, true));
  EXPECT_EQ(save().step, 7);
  expect_saved(7);
}

TEST_F(RemainsTest, NothingIsSavedOfAStepOfWhichNoRankKnowsWhereTheRunStood) {
  hold(5);
  hold(7, -1, false);
  EXPECT_EQ(save().step, 5);
}

TEST_F(RemainsTest, NothingIsSavedWhereNoStepIsWhole) {
  hold(5, 0);
  hold(7, 3);
  EXPECT_EQ(save().problem, "of no step all parts of the model are left");
  held_.clear();
  EXPECT_EQ(save().problem, "of no step all parts of the model are left");
  world_.barrier();
  EXPECT_FALSE(fs::exists(folder_ / "checkpoints"));
}

TEST_F(RemainsTest, AllRanksLearnWhyNothingCouldBeWritten) {
  hold(7);
  if (world_.rank() == 0) std::ofstream(folder_ / "checkpoints") << "a file\n";
  world_.barrier();
  const auto remains = save();
  EXPECT_THAT(remains.problem, HasSubstr("checkpoints"));
  EXPECT_EQ(world_.broadcast(remains.problem, 0), remains.problem);
}

}  // namespace
}  // namespace dtrain::state
