#include "data/loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "data/epoch_requests.hpp"
#include "data/folder.hpp"
#include "data/import/stage.hpp"
#include "data/synthetic/synthetic.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

using ::testing::HasSubstr;
using Drive = LoaderOptions::Drive;
using testing::error_of;
using testing::TemporaryFolder;

/// What a run of batches contained.
struct Seen {
  std::vector<std::int64_t> steps;
  std::vector<int> pieces;
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> inputs;
  std::vector<std::int64_t> targets;
  bool operator==(const Seen&) const = default;
};

Seen take(Loader& loader, std::size_t batches) {
  Seen seen;
  for (std::size_t i = 0; i < batches; ++i) {
    const Batch batch = loader.next();
    seen.steps.push_back(batch.step);
    seen.pieces.push_back(batch.micro_batch);
    seen.samples.insert(seen.samples.end(), batch.samples.begin(), batch.samples.end());
    seen.sizes.push_back(batch.inputs->shape().at(0));
    const auto bytes = batch.inputs->as<std::uint8_t>();
    seen.inputs.insert(seen.inputs.end(), bytes.begin(), bytes.end());
    const auto targets = batch.targets->as<std::int64_t>();
    seen.targets.insert(seen.targets.end(), targets.begin(), targets.end());
  }
  return seen;
}

SyntheticSpec small_images() {
  return {.shape = {1, 8, 8}, .train_samples = 700, .validation_samples = 1, .test_samples = 1};
}

/// Three pieces a step, a ragged last step in which two of them are empty.
std::vector<PieceRequest> ragged_epoch() {
  return epoch_requests(epoch_order(700, Order::shuffled, 1, 1), 233, 3, {0, 3}, {0, 4}, 1);
}

TEST(LoaderTest, TheThreadBringsWhatInlineReadingBrings) {
  const Dataset dataset = synthetic_dataset(small_images());
  const auto requests = ragged_epoch();
  Loader inline_loader(dataset, "train");
  inline_loader.start(requests);
  const Seen expected = take(inline_loader, requests.size());
  EXPECT_EQ(expected.samples.size(), 700);
  EXPECT_EQ(expected.sizes.back(), 1);
  EXPECT_EQ(expected.sizes[expected.sizes.size() - 2], 0);
  for (const int prefetch : {1, 2, 16}) {
    Loader threaded(dataset, "train", {.drive = Drive::thread, .prefetch = prefetch});
    threaded.start(requests);
    EXPECT_EQ(take(threaded, requests.size()), expected) << prefetch;
  }
}

TEST(LoaderTest, FilesBringWhatMemoryBringsHoweverTheyAreRead) {
  TemporaryFolder folder;
  h5::Library library;
  const SyntheticSpec spec = small_images();
  const auto requests = ragged_epoch();
  Loader memory(synthetic_dataset(spec), "train");
  memory.start(requests);
  const Seen expected = take(memory, requests.size());
  stage_synthetic({.name = "images", .data_root = folder.path(), .shards = 3}, spec, library);
  for (const std::size_t cache : {std::size_t{0}, std::size_t{1} << 30})
    for (const Drive drive : {Drive::inline_call, Drive::thread}) {
      Loader files(Dataset::open(folder / "images", library), "train", {.drive = drive},
                   {.cache_bytes = cache});
      for (int epoch = 0; epoch < 2; ++epoch) {  // the second finds every chunk verified
        files.start(requests);
        EXPECT_EQ(take(files, requests.size()), expected) << cache << " bytes of cache, epoch " << epoch;
      }
    }
}

TEST(LoaderTest, AnArrayIsFilledAgainOnlyWhenNothingRefersToIt) {
  using Array = std::shared_ptr<const HostArray>;
  const auto bytes_of = [](const Array& array) {
    const auto bytes = array->as<std::uint8_t>();
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  };
  const Dataset dataset = synthetic_dataset(small_images());
  for (const Drive drive : {Drive::inline_call, Drive::thread}) {
    std::vector<Array> kept;
    std::vector<std::vector<std::uint8_t>> as_they_came;
    {
      Loader loader(dataset, "train", {.drive = drive, .prefetch = 2});
      for (int run = 0; run < 2; ++run) {
        loader.start(ragged_epoch());
        for (std::size_t i = 0; i < ragged_epoch().size(); ++i) {
          const Batch batch = loader.next();
          if (i % 2 == 1) continue;  // its arrays may be used again
          kept.push_back(batch.inputs);
          as_they_came.push_back(bytes_of(batch.inputs));
        }
      }
    }
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(bytes_of(kept[i]), as_they_came[i]) << i;
  }
}

TEST(LoaderTest, BuffersAreAllocatedOnceAndGivenBack) {
  std::atomic<int> alive = 0;
  std::atomic<int> allocations = 0;
  const Allocator plain = aligned_allocator();
  const Allocator counting{.allocate =
                               [&, plain](std::size_t bytes) {
                                 ++alive;
                                 ++allocations;
                                 return plain.allocate(bytes);
                               },
                           .release =
                               [&, plain](void* data, std::size_t bytes) {
                                 --alive;
                                 plain.release(data, bytes);
                               }};
  {
    Loader loader(synthetic_dataset(small_images()), "train", {.allocator = counting});
    for (int epoch = 0; epoch < 3; ++epoch) {
      loader.start(epoch_requests(epoch_order(700, Order::identity, 1, 1), 64, 1, {0, 1}, {0, 10}, 1));
      take(loader, 10);
    }
    EXPECT_EQ(allocations, 2);  // inputs and targets
    EXPECT_EQ(alive, 2);
  }
  EXPECT_EQ(alive, 0);
}

TEST(LoaderTest, AskingBeyondTheEndIsAnErrorAndNotAHang) {
  const Dataset dataset = synthetic_dataset(small_images());
  for (const Drive drive : {Drive::inline_call, Drive::thread}) {
    Loader loader(dataset, "train", {.drive = drive});
    EXPECT_THAT(error_of([&] { loader.next(); }).what(), HasSubstr("no further batch"));
    loader.start(std::vector<PieceRequest>{{.step = 1, .samples = {0, 1}}});
    loader.next();
    EXPECT_THAT(error_of([&] { loader.next(); }).what(), HasSubstr("no further batch"));
  }
}

TEST(LoaderTest, StartDropsWhatWasLeft) {
  const Dataset dataset = synthetic_dataset(small_images());
  Loader loader(dataset, "train", {.drive = Drive::thread, .prefetch = 3});
  loader.start(ragged_epoch());
  loader.next();
  loader.start(std::vector<PieceRequest>{{.step = 77, .samples = {5}}});
  EXPECT_EQ(loader.next().step, 77);
}

TEST(LoaderTest, ASampleThatDoesNotExistIsAnError) {
  const Dataset dataset = synthetic_dataset(small_images());
  for (const std::int64_t id : {-1, 700}) {
    Loader loader(dataset, "train");
    loader.start(std::vector<PieceRequest>{{.step = 1, .samples = {0, id}}});
    EXPECT_THAT(error_of([&] { loader.next(); }).what(),
                HasSubstr("there is no sample " + std::to_string(id)));
  }
}

TEST(LoaderTest, BatchesAreAlignedForAnyVectorRegister) {
  const Dataset dataset = synthetic_dataset(small_images());
  Loader loader(dataset, "train");
  loader.start(std::vector<PieceRequest>{{.step = 1, .samples = {0, 1, 2}}});
  const Batch batch = loader.next();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.inputs->data()) % 64, 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.targets->data()) % 64, 0);
}

/// Fails at sample 13.
class BrokenSource final : public SampleSource {
 public:
  std::int64_t samples() const override { return 100; }
  void gather(std::span<const std::int64_t> ids, HostArray& inputs, HostArray& targets) const override {
    for (const std::int64_t id : ids)
      if (id == 13) throw data_error("is damaged", "train.h5", "restore it");
    inputs.reset(ElementType::uint8, {static_cast<std::int64_t>(ids.size())});
    targets.reset(ElementType::int64, {static_cast<std::int64_t>(ids.size())});
  }
};

TEST(LoaderTest, DamageReachesTheCallerAfterTheGoodBatches) {
  for (const Drive drive : {Drive::inline_call, Drive::thread}) {
    Loader loader(std::make_shared<BrokenSource>(), {.drive = drive});
    loader.start(std::vector<PieceRequest>{{.step = 1, .samples = {1}}, {.step = 2, .samples = {13}}});
    EXPECT_EQ(loader.next().step, 1);
    const Error error = error_of([&] { loader.next(); });
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_EQ(error.subject(), "train.h5");
  }
}

TEST(LoaderTest, TextIsPaddedToTheLongestOfTheBatch) {
  const Dataset dataset = synthetic_dataset({.task = "text_classification", .train_samples = 50});
  Loader loader(dataset, "train");
  loader.start(std::vector<PieceRequest>{{.samples = {0, 1, 2, 3, 4, 5, 6, 7}}});
  const Batch batch = loader.next();
  ASSERT_EQ(batch.inputs->shape().size(), 2);
  const std::int64_t width = batch.inputs->shape()[1];
  EXPECT_LE(width, 24);
  bool full = false;
  for (std::int64_t row = 0; row < 8; ++row) {
    const auto tokens = batch.inputs->as<std::int32_t>().subspan(static_cast<std::size_t>(row * width),
                                                                 static_cast<std::size_t>(width));
    const auto length = std::find(tokens.begin(), tokens.end(), 0) - tokens.begin();
    EXPECT_GE(length, 12);
    EXPECT_TRUE(std::all_of(tokens.begin() + length, tokens.end(), [](std::int32_t id) { return id == 0; }));
    full = full || length == width;
  }
  EXPECT_TRUE(full);
}

TEST(LoaderTest, ABlockPredictsTheTokenAfterEachOfItsOwn) {
  const Dataset dataset =
      synthetic_dataset({.task = "language_modelling", .shape = {16}, .train_samples = 9});
  HostArray inputs;
  HostArray targets;
  dataset.source("train")->gather(std::vector<std::int64_t>{3, 4}, inputs, targets);
  const auto in = inputs.as<std::int32_t>();
  const auto out = targets.as<std::int32_t>();
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(out[i], in[i + 1]);
  EXPECT_EQ(out[15], in[16]);  // block 4 begins where block 3 ends
}

}  // namespace
}  // namespace dtrain::data
