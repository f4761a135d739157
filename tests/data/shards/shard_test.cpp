#include "data/shards/shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "data/folder.hpp"
#include "data/import/stage.hpp"
#include "data/shards/column.hpp"
#include "data/shards/library_column.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"
#include "h5/types.hpp"

namespace dtrain::data {
namespace {

using testing::error_of;
using testing::expect_data_error;
using testing::TemporaryFolder;

class OpenColumnsTest : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  h5::Library library;
};

TEST_F(OpenColumnsTest, ManySmallChunksAreReadByHdf5InOneGo) {
  // To ask for the place of each would take time that grows with the square of their number.
  constexpr int kRows = 60'000;
  {
    const auto lock = library.lock();
    const h5::File file = h5::create_file((folder / "many.h5").string());
    const auto dataset =
        h5::create_chunked(file.id(), "x", h5::file_type(h5::ElementType::uint8).id(), {kRows, 2},
                           {.chunk = {1, 2}, .checksum = h5::Checksum::fletcher32});
    std::vector<std::uint8_t> values(2 * kRows);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i % 251);
    h5::write_slab<std::uint8_t>(dataset, {0, 0}, {kRows, 2}, values);
  }
  const auto columns = open_columns(folder / "many.h5", {{"/x", {ElementType::uint8}}}, library, {});
  EXPECT_NE(dynamic_cast<const MemoryColumn*>(columns.at(0).get()), nullptr);
  std::array<std::byte, 2> row{};
  columns.at(0)->read(kRows - 1, 1, row.data());
  EXPECT_EQ(static_cast<int>(row[1]), (2 * kRows - 1) % 251);
}

TEST_F(OpenColumnsTest, ManyLargeChunksAreReadByHdf5OneByOneWhereAListOfThemWouldBeUsedOnce) {
  constexpr int kRows = 4200;
  constexpr int kRowBytes = 64 << 10;
  {
    const auto lock = library.lock();
    const h5::File file = h5::create_file((folder / "many.h5").string());
    const auto x = h5::create_chunked(file.id(), "x", h5::file_type(h5::ElementType::uint8).id(),
                                      {kRows, kRowBytes}, {.chunk = {1, kRowBytes}});
    const auto y = h5::create_contiguous(file.id(), "y", h5::file_type(h5::ElementType::int64).id(), {kRows});
    std::vector<std::uint8_t> row(kRowBytes);
    std::vector<std::int64_t> targets;
    for (std::uint64_t i = 0; i < kRows; ++i) {
      targets.push_back(static_cast<std::int64_t>(i % 3));
      if (i % 100 != 0 && i + 1 != kRows) continue;  // the others are never written, and read as zeros
      std::fill(row.begin(), row.end(), static_cast<std::uint8_t>(i % 251));
      h5::write_slab<std::uint8_t>(x, {i, 0}, {1, kRowBytes}, row);
    }
    h5::write_slab<std::int64_t>(y, {0}, {kRows}, targets);
  }
  const std::vector<ArrayRequest> wanted = {{"/x", {ElementType::uint8}}, {"/y", {ElementType::int64}}};
  {
    const auto columns = open_columns(folder / "many.h5", wanted, library, {.few_reads = true});
    ASSERT_NE(dynamic_cast<const LibraryColumn*>(columns.at(0).get()), nullptr);
    std::vector<std::byte> rows(std::size_t{3} * kRowBytes);
    columns.at(0)->gather(std::vector<std::int64_t>{kRows - 1, 200, 7}, rows.data());
    EXPECT_EQ(static_cast<int>(rows.at(1)), (kRows - 1) % 251);
    EXPECT_EQ(static_cast<int>(rows.at(kRowBytes)), 200);
    EXPECT_EQ(static_cast<int>(rows.at(2 * kRowBytes)), 0);
    std::vector<std::byte> all(std::size_t{kRows} * kRowBytes);  // more than a burst
    columns.at(0)->read(0, kRows, all.data());
    for (std::size_t i = 0; i < kRows; i += 100)
      EXPECT_EQ(static_cast<std::size_t>(all[i * kRowBytes + 5]), i % 251) << i;
  }
  // One array after another that is opened, and then one that is not there: nothing waits for the lock.
  expect_data_error(error_of([&] {
                      open_columns(folder / "many.h5", {wanted[0], {"/z", {ElementType::uint8}}}, library,
                                   {.few_reads = true});
                    }),
                    "no such dataset");
  auto lock = library.try_lock();
  ASSERT_TRUE(lock.owns_lock());
  lock.unlock();
  StageOptions given{.name = "many", .from = folder / "many.h5", .data_root = folder / "staged"};
  given.inputs = "/x";
  given.targets = "/y";
  stage(given, library);
  EXPECT_EQ(Dataset::open(folder / "staged/many", library).info().samples("train"), 3360);
}

TEST_F(OpenColumnsTest, ManyLargeChunksThatAreNotThereAreRefused) {
  {
    const auto lock = library.lock();
    const h5::File file = h5::create_file((folder / "claims.h5").string());
    h5::create_chunked(file.id(), "x", h5::file_type(h5::ElementType::uint8).id(), {500'000, 1 << 20},
                       {.chunk = {1, 1 << 20}});
  }
  expect_data_error(
      error_of([&] {
        open_columns(folder / "claims.h5", {{"/x", {ElementType::uint8}}}, library, {.few_reads = true});
      }),
      "more rows than its file holds");
}

}  // namespace
}  // namespace dtrain::data
