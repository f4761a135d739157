#include "h5/dataset.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::h5 {
namespace {

template <class T>
std::vector<T> bytes_at(const std::string& path, std::uint64_t offset, std::size_t n) {
  std::vector<T> values(n);
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(n * sizeof(T)));
  EXPECT_TRUE(in.good());
  return values;
}

class DatasetTest : public testing::Test {
 protected:
  Library library_;
  Library::Lock lock_ = library_.lock();
  test::ScratchFolder folder_;
  std::string path_ = folder_.file("d.h5");
};

TEST_F(DatasetTest, ChunksLieWhereTheirPlacesSay) {
  std::vector<std::int32_t> values(10);
  std::iota(values.begin(), values.end(), 100);
  File file = create_file(path_);
  {
    const Dataset dataset = create_chunked(file.id(), "x", file_type(ElementType::int32).id(), {10},
                                           {.chunk = {4}, .checksum = Checksum::fletcher32});
    write_slab<std::int32_t>(dataset, {0}, {10}, values);
  }
  file.close();
  file = open_file(path_, Access::read);
  const Dataset dataset = open_dataset(file.id(), "x");
  const std::vector<ChunkPlace> places = chunk_places(dataset);
  ASSERT_EQ(places.size(), 3U);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i].offset, Shape{4 * i});
    EXPECT_EQ(places[i].bytes, 4 * sizeof(std::int32_t) + 4) << "Fletcher-32 adds four bytes";
    EXPECT_EQ(places[i].filter_mask, 0U);
    const std::size_t n = i == 2 ? 2 : 4;
    EXPECT_EQ(bytes_at<std::int32_t>(path_, places[i].file_offset, n),
              std::vector<std::int32_t>(values.begin() + static_cast<std::ptrdiff_t>(4 * i),
                                        values.begin() + static_cast<std::ptrdiff_t>(4 * i + n)));
  }
  const DatasetInfo about = info(dataset);
  EXPECT_EQ(about.shape, Shape{10});
  EXPECT_EQ(about.chunk, Shape{4});
  EXPECT_EQ(about.type, ElementType::int32);
  EXPECT_TRUE(about.fletcher32);
  EXPECT_FALSE(about.other_filters);
  EXPECT_FALSE(about.contiguous);
}

TEST_F(DatasetTest, AContiguousDatasetIsAllocatedAtOnceAndCanBeWrittenFromOutside) {
  File file = create_file(path_);
  std::uint64_t offset = 0;
  {
    const Dataset dataset =
        create_contiguous(file.id(), "/model/w", file_type(ElementType::float32).id(), {2, 3});
    offset = file_offset(dataset);
    EXPECT_TRUE(info(dataset).contiguous);
  }
  file.close();
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  {
    std::fstream out(path_, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(offset));
    out.write(reinterpret_cast<const char*>(values.data()), sizeof(float) * 6);
  }
  file = open_file(path_, Access::read);
  EXPECT_EQ(read_all<float>(open_dataset(file.id(), "/model/w")), values);
}

TEST_F(DatasetTest, ASlabOfAMatrixIsReadAlone) {
  const File file = create_file(path_);
  std::vector<double> values(12);
  std::iota(values.begin(), values.end(), 0.0);
  write_dataset<double>(file.id(), "m", {3, 4}, values);
  const Dataset dataset = open_dataset(file.id(), "m");
  std::vector<double> part(4);
  read_slab<double>(dataset, {1, 2}, {2, 2}, part);
  EXPECT_EQ(part, (std::vector<double>{6, 7, 10, 11}));
  EXPECT_THROW(read_slab<double>(dataset, {2, 2}, {2, 2}, part), Error) << "leaves the dataset";
  EXPECT_THROW(read_slab<double>(dataset, {0, 0}, {3, 3}, part), Error) << "too few values";
  EXPECT_THROW(read_slab<double>(dataset, {0}, {4}, part), Error) << "another number of dims";
}

TEST_F(DatasetTest, RowsCanBeAddedToAnExtendibleDatasetOnly) {
  const File file = create_file(path_);
  const Datatype type = file_type(ElementType::int64);
  const Dataset grows =
      create_chunked(file.id(), "g", type.id(), {0}, {.chunk = {8}, .extent = Extent::extendible});
  set_rows(grows, 2);
  write_slab<std::int64_t>(grows, {0}, {2}, std::vector<std::int64_t>{5, 6});
  EXPECT_EQ(read_all<std::int64_t>(grows), (std::vector<std::int64_t>{5, 6}));
  const Dataset fixed = create_chunked(file.id(), "f", type.id(), {4}, {.chunk = {4}});
  EXPECT_THROW(set_rows(fixed, 5), Error);
}

TEST_F(DatasetTest, EmptyAndScalarDatasetsAreLegal) {
  const File file = create_file(path_);
  write_dataset<float>(file.id(), "empty", {0, 3}, {});
  write_dataset<std::int64_t>(file.id(), "num_batches_tracked", {}, std::vector<std::int64_t>{42});
  EXPECT_TRUE(read_all<float>(open_dataset(file.id(), "empty")).empty());
  EXPECT_EQ(info(open_dataset(file.id(), "empty")).shape, (Shape{0, 3}));
  EXPECT_EQ(read_all<std::int64_t>(open_dataset(file.id(), "num_batches_tracked")),
            std::vector<std::int64_t>{42});
  EXPECT_TRUE(info(open_dataset(file.id(), "num_batches_tracked")).shape.empty());
}

TEST_F(DatasetTest, EveryElementTypeIsRecognised) {
  const File file = create_file(path_);
  for (const ElementType type :
       {ElementType::int8, ElementType::uint8, ElementType::int16, ElementType::uint16, ElementType::int32,
        ElementType::uint32, ElementType::int64, ElementType::uint64, ElementType::float16,
        ElementType::float32, ElementType::float64}) {
    const std::string name(element_name(type));
    create_contiguous(file.id(), name, file_type(type).id(), {1});
    const DatasetInfo about = info(open_dataset(file.id(), name));
    EXPECT_EQ(about.type, type) << name;
    EXPECT_EQ(about.element_bytes, element_bytes(type)) << name;
    EXPECT_TRUE(about.little_endian) << name;
  }
}

/// Replaces `from`, which the file has once or more, by as many bytes.
void damage(const std::string& path, const std::string& from, const std::string& to) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  ASSERT_NE(bytes.find(from), std::string::npos) << "HDF5 writes this type in another way";
  for (auto at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + to.size()))
    bytes.replace(at, from.size(), to);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// HDF5 1.10.8 writes beyond its stack where an exponent has 255 bits.
TEST_F(DatasetTest, NumbersWhoseBitsLieOutsideTheirBytesAreRefused) {
  using namespace std::string_literals;
  const auto float32 = "\x20\x00\x17\x08\x00\x17"s;  // 32 bits: exponent of 8 from 23, mantissa of 23 from 0
  const auto int64 = "\x08\x00\x00\x00\x00\x00\x40\x00"s;  // 8 bytes: 64 bits from 0
  const auto write = [this] {
    File file = create_file(path_);
    const std::vector<float> values = {1, 2};
    write_slab<float>(create_contiguous(file.id(), "x", file_type(ElementType::float32).id(), {2}), {0}, {2},
                      values);
    write_attribute(file.id(), "count", std::int64_t{3});
    file.close();
  };
  for (const auto& other :
       {"\x20\x00\x17\xff\x00\x17"s, "\x20\x00\x17\x08\xf0\x17"s, "\xff\x00\x17\x08\x00\x17"s}) {
    write();
    damage(path_, float32, other);
    const File file = open_file(path_, Access::read);
    EXPECT_THROW(open_dataset(file.id(), "x"), Error);
    EXPECT_EQ(read_int_attribute(file.id(), "count"), 3);
  }
  write();
  damage(path_, int64, "\x08\x00\x00\x00\x09\x00\x40\x00"s);
  const File file = open_file(path_, Access::read);
  EXPECT_THROW(read_int_attribute(file.id(), "count"), Error);
  EXPECT_EQ(read_all<float>(open_dataset(file.id(), "x")), (std::vector<float>{1, 2}));
}

TEST_F(DatasetTest, StringsComeBack) {
  const File file = create_file(path_);
  const std::vector<std::string> words = {"<pad>", "", "naïve", "a"};
  write_strings(file.id(), "vocabulary", words);
  EXPECT_EQ(read_strings(open_dataset(file.id(), "vocabulary")), words);
}

}  // namespace
}  // namespace dtrain::h5
