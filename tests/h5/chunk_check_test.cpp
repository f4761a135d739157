#include "h5/chunk_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <ctime>
#include <fstream>
#include <numeric>

#include "h5/file.hpp"
#include "h5/library.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::h5 {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes deflated(const Bytes& plain) {
  uLongf bytes = compressBound(plain.size());
  Bytes packed(bytes);
  EXPECT_EQ(compress(packed.data(), &bytes, plain.data(), plain.size()), Z_OK);
  packed.resize(bytes);
  return packed;
}

class ChunkCheckTest : public testing::Test {
 protected:
  /// Eight values in two chunks, which HDF5 packs.
  Dataset make(const std::vector<H5Z_filter_t>& filters) {
    const PropertyList list(H5Pcreate(H5P_DATASET_CREATE));
    const hsize_t chunk = 4;
    H5Pset_chunk(list.id(), 1, &chunk);
    for (const H5Z_filter_t filter : filters) {
      const unsigned level = 6;
      H5Pset_filter(list.id(), filter, 0, filter == H5Z_FILTER_DEFLATE ? 1 : 0, &level);
    }
    const hsize_t n = 8;
    const Dataspace space(H5Screate_simple(1, &n, nullptr));
    Dataset dataset(H5Dcreate2(file_.id(), "x", file_type(ElementType::int32).id(), space.id(), H5P_DEFAULT,
                               list.id(), H5P_DEFAULT));
    std::vector<std::int32_t> values(8);
    std::iota(values.begin(), values.end(), 1);
    write_slab<std::int32_t>(dataset, {0}, {8}, values);
    flush(file_);
    return dataset;
  }

  /// Puts these bytes in the place of the second chunk, as a file's author can.
  static void replace(const Dataset& dataset, const Bytes& stored, std::uint32_t left_out = 0) {
    const hsize_t second = 4;
    check(H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, left_out, &second, stored.size(), stored.data()),
          "cannot be written", dataset.id());
  }

  std::string refusal(const Dataset& dataset) {
    std::vector<std::int32_t> values(8);
    try {
      read_slab<std::int32_t>(dataset, {0}, {8}, values);
    } catch (const Error& error) {
      return error.problem();
    }
    return "";
  }

  Library library_;
  Library::Lock lock_ = library_.lock();
  test::ScratchFolder folder_;
  std::string path_ = folder_.file("d.h5");
  File file_ = create_file(path_);
};

TEST_F(ChunkCheckTest, WholeChunksAreRead) {
  for (const auto& filters : std::vector<std::vector<H5Z_filter_t>>{
           {},
           {H5Z_FILTER_FLETCHER32},
           {H5Z_FILTER_DEFLATE},
           {H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32},
           {H5Z_FILTER_FLETCHER32, H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE}}) {
    const Dataset dataset = make(filters);
    EXPECT_EQ(read_all<std::int32_t>(dataset), (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
    remove_link(file_.id(), "x");
  }
}

TEST_F(ChunkCheckTest, AChunkThatUnpacksToLessOrMoreIsRefused) {
  const Dataset dataset = make({H5Z_FILTER_DEFLATE});
  replace(dataset, deflated(Bytes(16, 7)));
  EXPECT_EQ(refusal(dataset), "");
  replace(dataset, deflated(Bytes(12, 7)));
  EXPECT_EQ(refusal(dataset), "has a chunk that unpacks to 12 bytes instead of 16");
  std::vector<std::int32_t> first(4);
  EXPECT_NO_THROW(read_slab<std::int32_t>(dataset, {0}, {4}, first)) << "only the second is damaged";
  replace(dataset, deflated(Bytes(1000, 7)));
  EXPECT_EQ(refusal(dataset), "has a chunk that unpacks to more than 16 bytes");
  replace(dataset, deflated({}));
  EXPECT_EQ(refusal(dataset), "has a chunk that unpacks to 0 bytes instead of 16");
}

TEST_F(ChunkCheckTest, WhatIsNoWholeStreamIsRefused) {
  const Dataset dataset = make({H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE});
  Bytes cut = deflated(Bytes(16, 7));
  cut.pop_back();
  for (const Bytes& stored : {cut, Bytes(16, 0xFF), Bytes(1, 0x78)}) {
    replace(dataset, stored);
    EXPECT_EQ(refusal(dataset), "has a chunk that cannot be unpacked");
  }
}

TEST_F(ChunkCheckTest, AChunkWhoseFiltersWereLeftOutHasItsOwnSize) {
  const Dataset dataset = make({H5Z_FILTER_DEFLATE});
  replace(dataset, Bytes(16, 7), 1);
  EXPECT_EQ(refusal(dataset), "");
  replace(dataset, Bytes(8, 7), 1);
  EXPECT_EQ(refusal(dataset), "has a chunk that unpacks to 8 bytes instead of 16");
}

TEST_F(ChunkCheckTest, AShortChunkUnderAChecksumIsRefused) {
  const Dataset dataset = make({H5Z_FILTER_FLETCHER32});
  replace(dataset, Bytes(12, 0));
  EXPECT_EQ(refusal(dataset), "has a chunk that unpacks to 8 bytes instead of 16");
  replace(dataset, Bytes(3, 0));
  EXPECT_EQ(refusal(dataset), "has a chunk that cannot be unpacked");
}

TEST_F(ChunkCheckTest, FiltersThatAreNotUnderstoodAreRefused) {
  EXPECT_THAT(refusal(make({H5Z_FILTER_NBIT})), testing::HasSubstr("a filter other than deflate"));
}

TEST_F(ChunkCheckTest, ManyChunksTakeTimeInProportion) {
  const auto time_of = [&](std::uint64_t rows) {
    const std::string name = "rows" + std::to_string(rows);
    const Dataset written = create_chunked(file_.id(), name, file_type(ElementType::uint8).id(), {rows, 4},
                                           {.chunk = {1, 4}, .deflate = 1});
    const std::vector<std::uint8_t> values(rows * 4, 3);
    write_slab<std::uint8_t>(written, {0, 0}, {rows, 4}, values);
    const std::clock_t begun = std::clock();
    require_whole_chunks(written, {0, 0}, {rows, 4});
    return static_cast<double>(std::clock() - begun);
  };
  time_of(500);  // what is loaded at the first call
  const double few = time_of(2000);
  const double many = time_of(20000);
  EXPECT_LT(many, 40 * few) << "ten times as many chunks, and a tree of chunks that is a little deeper";
}

// Unfiltered chunks have no size of their own, but the file's tree of chunks has a field for it, which
// HDF5 1.10.8 believes where it keeps chunks in its cache. Of a value that is nowhere else the file has it
// once per chunk.
TEST_F(ChunkCheckTest, AnUnfilteredChunkIsReadByTheSizeOfAChunk) {
  constexpr std::uint64_t kElements = 1003;
  {
    const Dataset dataset = create_chunked(file_.id(), "plain", file_type(ElementType::int32).id(),
                                           {2 * kElements}, {.chunk = {kElements}});
    write_slab<std::int32_t>(dataset, {0}, {2 * kElements}, std::vector<std::int32_t>(2 * kElements, 5));
  }
  file_.close();
  std::ifstream in(path_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::uint32_t size = kElements * 4;
  const std::string whole(reinterpret_cast<const char*>(&size), sizeof size);
  const std::size_t tree = bytes.find("TREE", bytes.find("TREE") + 4);  // behind the group's own
  int found = 0;
  for (std::size_t at = bytes.find(whole, tree); at != std::string::npos;
       at = bytes.find(whole, at + 4), ++found)
    bytes.replace(at, 4, std::string("\x08\0\0\0", 4));
  ASSERT_GE(found, 2);
  std::ofstream(path_, std::ios::binary) << bytes;
  file_ = open_file(path_, Access::read);
  EXPECT_EQ(read_all<std::int32_t>(open_dataset(file_.id(), "plain")),
            std::vector<std::int32_t>(2 * kElements, 5));
}

}  // namespace
}  // namespace dtrain::h5
