#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <thread>

#include "checkpoint/reader.hpp"
#include "checkpoint/support.hpp"
#include "checkpoint/writer.hpp"
#include "core/error.hpp"
#include "core/sha256.hpp"
#include "h5/library.hpp"

namespace dtrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void flip_byte(const fs::path& file, std::int64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const char byte = static_cast<char>(stream.get());
  stream.seekp(at);
  stream.put(static_cast<char>(byte ^ 1));
}

/// What loading says, and that it says it with exit code 4.
std::string refusal(const fs::path& folder, h5::Library& library) {
  try {
    load(folder, library);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    return error.what();
  }
  return "loaded";
}

template <typename T>
std::vector<T> read(const CheckpointReader& reader, const std::string& name, const std::string& dtype,
                    std::size_t n) {
  std::vector<T> values(n);
  reader.read(name, dtype, std::as_writable_bytes(std::span(values)));
  return values;
}

class CheckpointTest : public testing::Test {
 protected:
  fs::path save_small() { return save(folder.path(), state.info, state.tensors(), library); }
  TemporaryFolder folder;
  h5::Library library;
  SmallState state;
};

TEST_F(CheckpointTest, GivesBackWhatWasSaved) {
  const auto target = save_small();
  EXPECT_EQ(target.filename(), "step-00000500");
  const auto reader = load(target, library);
  EXPECT_EQ(reader.info().step, 500);
  EXPECT_EQ(reader.info().epoch, 2);
  EXPECT_EQ(reader.info().position_samples, 32000);
  EXPECT_EQ(reader.info().model, "mlp");
  EXPECT_EQ(reader.info().dataset, "mnist");
  EXPECT_EQ(reader.info().seed, 7U);
  EXPECT_EQ(reader.info().micro_batches, 8);
  EXPECT_EQ(reader.info().identity.samples, state.info.identity.samples);
  EXPECT_EQ(reader.info().identity.sha256, "abc");
  const auto transformations = reader.info().transformations.value();
  EXPECT_EQ(transformations.mean, state.info.transformations->mean);
  EXPECT_EQ(transformations.std_dev, state.info.transformations->std_dev);
  ASSERT_EQ(transformations.columns.size(), 2);
  EXPECT_EQ(transformations.columns[0].name, "age");
  EXPECT_EQ(transformations.columns[0].shift, 40.5);
  EXPECT_EQ(transformations.columns[0].scale, 2.0);
  EXPECT_EQ(transformations.columns[0].filled_with, 40.5);
  EXPECT_TRUE(transformations.columns[1].marks_gaps);
  EXPECT_EQ(transformations.targets, state.info.transformations->targets);
  EXPECT_EQ(transformations.targets.size(), 2);
  EXPECT_EQ(reader.info().config, "model = \"mlp\"\n");
  EXPECT_EQ(read<float>(reader, "model/fc.weight", "float32", 6), state.weight);
  EXPECT_EQ(read<double>(reader, "model/fc.bias", "float64", 2), state.bias);
  EXPECT_EQ(read<std::int64_t>(reader, "model/bn.num_batches_tracked", "int64", 1),
            std::vector<std::int64_t>{42});
  EXPECT_EQ(read<float>(reader, "optimizer/exp_avg/fc.weight", "float32", 6), state.average);
  EXPECT_EQ(read<float>(reader, "model/empty", "float32", 0), std::vector<float>{});
}

TEST_F(CheckpointTest, JoinsSlicesOfATensor) {
  // Columns 0-1 and 2-4 of a [3, 5] tensor, each contiguous where it is held.
  std::vector<float> whole(15);
  std::iota(whole.begin(), whole.end(), 0.0F);
  const std::vector<float> left = {0, 1, 5, 6, 10, 11};
  const std::vector<float> right = {2, 3, 4, 7, 8, 9, 12, 13, 14};
  const auto slice = [](std::int64_t offset, std::int64_t columns) {
    return Slice{.name = "w", .global_shape = {3, 5}, .offset = {0, offset}, .extent = {3, columns}};
  };
  const std::vector<TensorRef> first = {{.slice = slice(0, 2), .data = left.data()}};
  const std::vector<TensorRef> second = {{.slice = slice(2, 3), .data = right.data()}};
  EXPECT_THROW(save(folder.path() / "half", state.info, first, library), Error);  // nobody could read it
  const auto one = save(folder.path() / "one", state.info, std::vector{first[0], second[0]}, library);
  EXPECT_EQ(read<float>(load(one, library), "model/w", "float32", 15), whole);
  const Saving saving(folder.path() / "two", state.info.step);
  saving.begin();
  const std::vector<std::string> parts = {saving.write_part(0, first, library),
                                          saving.write_part(1, second, library)};
  const auto two = saving.commit(state.info, parts);
  EXPECT_EQ(read<float>(load(two, library), "model/w", "float32", 15), whole);
}

TEST_F(CheckpointTest, NamesTheFileWithAFlippedByte) {
  const auto target = save_small();
  const auto bytes = static_cast<std::int64_t>(fs::file_size(target / "part-00000.h5"));
  for (const std::int64_t at : {std::int64_t{0}, bytes / 2, bytes - 1}) {
    flip_byte(target / "part-00000.h5", at);
    EXPECT_THAT(refusal(target, library), HasSubstr("part-00000.h5: is damaged"));
    flip_byte(target / "part-00000.h5", at);
  }
  flip_byte(target / "manifest.json", 20);
  EXPECT_THAT(refusal(target, library), HasSubstr("manifest.json: is damaged"));
  flip_byte(target / "manifest.json", 20);
  EXPECT_EQ(refusal(target, library), "loaded");
}

TEST_F(CheckpointTest, NamesTheFileOfAFlippedBitWhereverItLies) {
  const auto target = save_small();
  std::vector<fs::path> files;
  std::vector<std::int64_t> ends = {0};
  for (const auto& entry : fs::directory_iterator(target)) {
    files.push_back(entry.path());
    ends.push_back(ends.back() + static_cast<std::int64_t>(fs::file_size(entry.path())));
  }
  ASSERT_EQ(files.size(), 3);
  std::mt19937_64 random(7);
  for (int i = 0; i < 100; ++i) {
    // Every other one in the manifest or its sum, which are small.
    const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(ends.back()));
    auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends, at) - ends.begin()) - 1;
    std::int64_t position = at - ends[file];
    if (i % 2 == 1) {
      while (files[file].filename().string().starts_with("part-")) file = (file + 1) % files.size();
      position = at % static_cast<std::int64_t>(fs::file_size(files[file]));
    }
    flip_byte(files[file], position);
    const bool of_manifest = files[file].filename().string().starts_with("manifest");
    EXPECT_THAT(refusal(target, library),
                HasSubstr(of_manifest ? "manifest" : files[file].filename().string()))
        << files[file] << " at " << position;
    flip_byte(files[file], position);
  }
  EXPECT_EQ(refusal(target, library), "loaded");
}

TEST_F(CheckpointTest, WritersLeaveTheirPartsAndOneFailureIsEveryones) {
  const Saving saving(folder.path(), 7);
  saving.begin();
  const auto tensors = state.tensors();
  const std::vector<int> writers = {0, 3};
  saving.leave_part(0, std::span(tensors).first(1), library);
  EXPECT_THROW(saving.await_parts(writers, 0.02), Error);  // the other has not come
  saving.leave_part(3, std::span(tensors).subspan(1), library);
  auto info = state.info;
  info.step = 7;
  const auto target = saving.commit(info, saving.await_parts(writers, 5));
  EXPECT_EQ(refusal(target, library), "loaded");
  EXPECT_EQ(std::distance(fs::directory_iterator(target), fs::directory_iterator()), 4);

  const Saving failing(folder.path(), 8);
  failing.begin();
  fs::create_directory(folder.path() / "step-00000008.partial" / "part-00001.h5");  // in its way
  failing.leave_part(1, tensors, library);
  try {
    failing.await_parts(std::vector<int>{1}, 5);
    FAIL() << "the failure was not told";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_THAT(error.what(), HasSubstr("part-00001.h5"));
  }
}

TEST_F(CheckpointTest, WaitsForAPartAsLongAsItGrows) {
  constexpr double kSilence_s = 2.0;
  const Saving saving(folder.path(), 9);
  saving.begin();
  EXPECT_TRUE(saving.is_open());
  const auto part = folder.path() / "step-00000009.partial" / "part-00000.h5";
  std::thread writer([&] {
    for (int burst = 0; burst < 30; ++burst) {  // 3 s in all
      std::ofstream(part, std::ios::app) << "more";
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    saving.leave_part(0, state.tensors(), library);
  });
  EXPECT_EQ(saving.await_parts(std::vector<int>{0}, kSilence_s).size(), 1);
  writer.join();
  saving.abandon();
  EXPECT_FALSE(saving.is_open());
}

TEST_F(CheckpointTest, HashingALargePartIsASignOfLife) {
  const auto part = folder.path() / "part-00000.h5";
  std::ofstream(part) << std::string(3 << 20, 'x');
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(part, long_ago);
  EXPECT_EQ(hash_of_part(part), sha256_of_file(part, ExitCode::checkpoint));
  EXPECT_GT(fs::last_write_time(part), long_ago + std::chrono::minutes(1));
}

TEST_F(CheckpointTest, IsWholeWhateverBecomesOfTheLinkToIt) {
  fs::create_directories(folder.path() / kLast / "copied");
  const Saving saving(folder.path(), state.info.step);
  saving.begin();
  const std::vector<std::string> parts = {saving.write_part(0, state.tensors(), library)};
  EXPECT_EQ(refusal(saving.commit(state.info, parts), library), "loaded");
  EXPECT_THROW(check_links(folder.path()), Error);
  EXPECT_THROW(mark(folder.path(), kLast, state.info.step), Error);
  fs::remove_all(folder.path() / kLast);
  mark(folder.path(), kLast, state.info.step);
  EXPECT_NO_THROW(check_links(folder.path()));
}

TEST_F(CheckpointTest, RemovesOldOnesButNotTheBest) {
  for (const std::int64_t step : {10, 20, 30, 40}) {
    auto info = state.info;
    info.step = step;
    save(folder.path(), info, state.tensors(), library);
  }
  mark(folder.path(), kBest, 20);
  for (const char* name : {"step-00000001.damaged", "step-00000002.damaged", "step-00000003.partial"}) {
    fs::create_directory(folder.path() / name);
  }
  remove_old(folder.path(), 1);
  const auto left = list(folder.path());
  ASSERT_EQ(left.size(), 2);
  EXPECT_EQ(left[0].filename(), "step-00000040");
  EXPECT_EQ(left[1].filename(), "step-00000020");
  EXPECT_FALSE(fs::exists(folder.path() / "step-00000001.damaged"));
  EXPECT_TRUE(fs::exists(folder.path() / "step-00000002.damaged"));
  EXPECT_FALSE(fs::exists(folder.path() / "step-00000003.partial"));
}

TEST_F(CheckpointTest, ReadsRunsOfATensor) {
  const auto reader = load(save_small(), library);
  const auto& tensor = reader.manifest().tensors.front();
  ASSERT_EQ(tensor.dtype, "float32");
  const auto count = tensor.bytes() / 4;
  ASSERT_GE(count, 6);
  const auto whole = read<float>(reader, tensor.name, "float32", static_cast<std::size_t>(count));
  std::vector<float> part(4);
  reader.read(tensor.name, "float32", Runs{.begin = 1, .length = 2, .stride = 3, .count = 2},
              std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, (std::vector<float>{whole[1], whole[2], whole[4], whole[5]}));
}

TEST_F(CheckpointTest, NamesAFileThatIsShortOrMissing) {
  const auto target = save_small();
  fs::resize_file(target / "part-00000.h5", fs::file_size(target / "part-00000.h5") - 1);
  EXPECT_THAT(refusal(target, library), HasSubstr("part-00000.h5: is damaged"));
  fs::remove(target / "part-00000.h5");
  EXPECT_THAT(refusal(target, library), HasSubstr("part-00000.h5: is missing"));
  fs::remove(target / "manifest.sha256");
  EXPECT_THAT(refusal(target, library), HasSubstr("is not a whole checkpoint"));
  fs::remove_all(target);
  EXPECT_THAT(refusal(target, library), HasSubstr("there is no such checkpoint"));
}

TEST_F(CheckpointTest, RefusesTheWrongTensorTypeOrSize) {
  const auto reader = load(save_small(), library);
  EXPECT_THROW(read<float>(reader, "model/fc.weights", "float32", 6), Error);
  EXPECT_THROW(read<float>(reader, "model/fc.weight", "float32", 5), Error);
  EXPECT_THROW(read<double>(reader, "model/fc.weight", "float64", 3), Error);
}

TEST_F(CheckpointTest, ReplacesAnOlderOneOfTheSameStepAndLeavesNothingElse) {
  save_small();
  state.weight[0] = 100.0F;
  const auto target = save_small();
  EXPECT_EQ(read<float>(load(target, library), "model/fc.weight", "float32", 6), state.weight);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2)
      << "it and last";
}

TEST_F(CheckpointTest, LeavesNothingBehindWhenItFails) {
  auto tensors = state.tensors();
  tensors[1].slice.name = "fc.weight";  // a second one of that name, of another type and shape
  EXPECT_THROW(save(folder.path(), state.info, tensors, library), Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST_F(CheckpointTest, BestPointsToTheStepLastMarked) {
  save_small();
  state.info.step = 750;
  save_small();
  mark(folder.path(), kBest, 500);
  EXPECT_EQ(load(folder.path() / "best", library).info().step, 500);
  mark(folder.path(), kBest, 750);
  EXPECT_EQ(load(folder.path() / "best", library).info().step, 750);
}

}  // namespace
}  // namespace dtrain::checkpoint
