#include "data/formats/cifar10.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/folder.hpp"
#include "data/import/archive_writer.hpp"
#include "data/import/stage.hpp"
#include "data/loader.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

using testing::error_of;
using testing::Format;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_archive;
using testing::write_bytes;

constexpr const char* kClasses = "plane\ncar\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";

/// Value `at` of record `record` of a file that begins with record `first`.
char value_of(int record, int at) { return static_cast<char>((record * 31 + at) % 251); }

/// Records first, first + 1, ...: record r has the label r % 10.
std::string records(int first, int count) {
  std::string bytes;
  for (int record = first; record < first + count; ++record) {
    bytes += static_cast<char>(record % 10);
    for (int at = 0; at < 3072; ++at) bytes += value_of(record, at);
  }
  return bytes;
}

class Cifar10Test : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder / "original"); }
  void write_plain() {
    write_bytes(folder / "original/data_batch_1.bin", records(0, 60));
    write_bytes(folder / "original/data_batch_2.bin", records(60, 40));
    write_bytes(folder / "original/test_batch.bin", records(100, 20));
    write_bytes(folder / "original/batches.meta.txt", kClasses);
  }
  DatasetInfo stage_from(const std::string& from, const std::string& name) {
    return stage({.name = name, .from = folder / from, .data_root = folder / "staged"}, library);
  }
  void expect_refused(const std::string& words) {
    const Error error = error_of([&] { stage_from("original", "refused"); });
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_THAT(error.what(), HasSubstr(words));
    EXPECT_FALSE(error.advice().empty());
    EXPECT_FALSE(std::filesystem::exists(folder / "staged/refused"));
    EXPECT_FALSE(std::filesystem::exists(folder / "staged/refused.partial"));
  }
  TemporaryFolder folder;
  h5::Library library;
};

TEST_F(Cifar10Test, RecordsBecomeImagesAndLabelsUnderTheirNames) {
  write_plain();
  const DatasetInfo info = stage_from("original", "small");
  EXPECT_EQ(info.task, "image_classification");
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(info.classes.at(9), "truck");
  EXPECT_EQ(info.classes.size(), 10);
  EXPECT_EQ(info.samples("train"), 90);
  EXPECT_EQ(info.samples("validation"), 10);
  EXPECT_EQ(info.mean.size(), 3);
  EXPECT_EQ(info.sources.size(), 4);
  EXPECT_EQ(info.sources.at(0).file, "batches.meta.txt");

  const Dataset dataset = Dataset::open(folder / "staged/small", library);
  HostArray images;
  HostArray labels;
  dataset.source("test")->gather(epoch_order(20, Order::identity, 0, 0), images, labels);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(labels.as<std::int64_t>()[static_cast<std::size_t>(i)], (100 + i) % 10);
    for (int at = 0; at < 3072; at += 511)
      EXPECT_EQ(images.as<char>()[static_cast<std::size_t>(i * 3072 + at)], value_of(100 + i, at));
  }
}

TEST_F(Cifar10Test, HoweverItIsPackedTheShardsAreTheSame) {
  write_plain();
  const DatasetInfo plain = stage_from("original", "plain");
  write_archive(folder / "cifar.tar.gz",
                {{"cifar-10-batches-bin/test_batch.bin", records(100, 20)},
                 {"cifar-10-batches-bin/data_batch_2.bin", records(60, 40)},
                 {"cifar-10-batches-bin/readme.html", "<html></html>"},
                 {"cifar-10-batches-bin/data_batch_1.bin", records(0, 60)},
                 {"cifar-10-batches-bin/batches.meta.txt", kClasses}},
                Format::tar, archive_write_add_filter_gzip);
  std::filesystem::create_directories(folder / "packed");
  const auto pack = [&](const char* name, const std::string& bytes, int (*filter)(archive*)) {
    write_archive(folder / "packed" / name, {{"any", bytes}}, Format::raw, filter);
  };
  pack("data_batch_1.bin.xz", records(0, 60), archive_write_add_filter_xz);
  pack("data_batch_2.bin.gz", records(60, 40), archive_write_add_filter_gzip);
  pack("test_batch.bin.xz", records(100, 20), archive_write_add_filter_xz);
  write_bytes(folder / "packed/batches.meta.txt", kClasses);
  for (const char* from : {"cifar.tar.gz", "packed"}) {
    const DatasetInfo other = stage_from(from, "other");
    EXPECT_EQ(other.classes, plain.classes) << from;
    EXPECT_EQ(other.mean, plain.mean) << from;
    const Dataset one = Dataset::open(folder / "staged/plain", library);
    const Dataset two = Dataset::open(folder / "staged/other", library);
    for (const auto& [split, count] : {std::pair{"train", 90}, {"validation", 10}, {"test", 20}}) {
      HostArray images[2];
      HostArray labels[2];
      one.source(split)->gather(epoch_order(count, Order::identity, 0, 0), images[0], labels[0]);
      two.source(split)->gather(epoch_order(count, Order::identity, 0, 0), images[1], labels[1]);
      EXPECT_TRUE(std::ranges::equal(images[0].as<char>(), images[1].as<char>())) << from << split;
      EXPECT_TRUE(std::ranges::equal(labels[0].as<std::int64_t>(), labels[1].as<std::int64_t>()));
    }
    std::filesystem::remove_all(folder / "staged/other");
  }
}

TEST_F(Cifar10Test, ClassesAreNumberedWhereNobodyNamesThem) {
  write_bytes(folder / "original/data_batch_1.bin", records(0, 50));
  const DatasetInfo info = stage_from("original", "numbered");
  EXPECT_EQ(info.classes.at(3), "3");
  EXPECT_EQ(info.samples("train"), 40);  // 80/10/10 without a test file
  EXPECT_EQ(info.samples("test"), 5);
}

TEST_F(Cifar10Test, AFileThatEndsWithinARecordIsRefused) {
  write_plain();
  write_bytes(folder / "original/data_batch_2.bin", records(60, 40).substr(0, 5 * 3073 + 17));
  expect_refused("data_batch_2.bin: is 15382 bytes long, so record 6 is cut off");
  write_bytes(folder / "original/data_batch_2.bin", "");
  expect_refused("data_batch_2.bin: is 0 bytes long");
}

TEST_F(Cifar10Test, ALabelOutsideTheClassesIsRefusedWithItsRecord) {
  write_plain();
  std::string bytes = records(60, 40);
  bytes[7 * 3073] = 10;
  write_bytes(folder / "original/data_batch_2.bin", bytes);
  expect_refused("data_batch_2.bin: has the label 10 in record 8, outside the classes 0 to 9");
  write_plain();
  write_bytes(folder / "original/batches.meta.txt", "yes\nno\n");
  expect_refused("test_batch.bin: has the label 2 in record 3, outside the classes 0 to 1");
}

TEST_F(Cifar10Test, WithoutATrainingFileItIsRefused) {
  write_bytes(folder / "original/test_batch.bin", records(100, 20));
  expect_refused("holds no data_batch_*.bin");
}

}  // namespace
}  // namespace dtrain::data
