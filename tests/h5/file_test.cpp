#include "h5/file.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/library.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::h5 {
namespace {

class FileTest : public testing::Test {
 protected:
  Library library_;
  Library::Lock lock_ = library_.lock();
  test::ScratchFolder folder_;
};

TEST_F(FileTest, AttributesComeBackAsTheyWereWritten) {
  const File file = create_file(folder_.file("a.h5"));
  write_attribute(file.id(), "count", 7);
  write_attribute(file.id(), "count", std::int64_t{1} << 40);  // replaces
  write_attribute(file.id(), "rate", 0.25);
  write_attribute(file.id(), "name", "größe");
  write_attribute(file.id(), "nothing", "");
  write_attribute(file.id(), "shape", std::vector<std::int64_t>{3, 32, 32});
  write_attribute(file.id(), "scalar", std::vector<std::int64_t>{});
  write_attribute(file.id(), "units", std::vector<std::string>{"s", "", "samples/s"});
  EXPECT_EQ(read_int_attribute(file.id(), "count"), std::int64_t{1} << 40);
  EXPECT_EQ(read_double_attribute(file.id(), "rate"), 0.25);
  EXPECT_EQ(read_string_attribute(file.id(), "name"), "größe");
  EXPECT_EQ(read_string_attribute(file.id(), "nothing"), "");
  EXPECT_EQ(read_ints_attribute(file.id(), "shape"), (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_TRUE(read_ints_attribute(file.id(), "scalar").empty());
  EXPECT_EQ(read_strings_attribute(file.id(), "units"), (std::vector<std::string>{"s", "", "samples/s"}));
  EXPECT_TRUE(has_attribute(file.id(), "rate"));
  EXPECT_FALSE(has_attribute(file.id(), "ratio"));
}

TEST_F(FileTest, AMissingAttributeIsNamedWithItsFile) {
  const File file = create_file(folder_.file("a.h5"));
  try {
    read_int_attribute(file.id(), "version");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.subject().find("a.h5"), std::string::npos) << error.what();
    EXPECT_NE(error.subject().find("attribute version"), std::string::npos) << error.what();
  }
}

TEST_F(FileTest, AFileOfAnotherKindGivesAnErrorWithTheReasonAndNoPrinting) {
  const std::string path = folder_.file("text.h5");
  std::ofstream(path) << "this is no HDF5 file, but long enough to be looked at by its reader";
  testing::internal::CaptureStderr();
  try {
    open_file(path, Access::read);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), path);
    EXPECT_NE(error.problem().find("HDF5: "), std::string::npos) << error.what();
    EXPECT_EQ(error.problem().find('\n'), std::string::npos) << "one sentence";
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(FileTest, FilesLoadNoFilterPlugins) {
  unsigned kinds = H5PL_ALL_PLUGIN;
  ASSERT_GE(H5PLget_loading_state(&kinds), 0);
  EXPECT_EQ(kinds, 0U);
}

TEST_F(FileTest, AMissingFolderIsAnError) {
  EXPECT_THROW(create_file(folder_.file("none/a.h5")), Error);
  EXPECT_THROW(open_file(folder_.file("none.h5"), Access::read), Error);
}

TEST_F(FileTest, GroupsAreListedFoundAndCopiedBetweenFilesWithAttributes) {
  const File from = create_file(folder_.file("from.h5"));
  create_group(from.id(), "/model/encoder");
  write_dataset<float>(from.id(), "/model/features.0.weight", {2}, std::vector<float>{1, 2});
  write_attribute(from.id(), "rank", 3);
  EXPECT_EQ(names(from.id(), "/model"), (std::vector<std::string>{"encoder", "features.0.weight"}));
  EXPECT_EQ(kind_of(from.id(), "/model"), ObjectKind::group);
  EXPECT_EQ(kind_of(from.id(), "/model/features.0.weight"), ObjectKind::dataset);
  EXPECT_TRUE(exists(from.id(), "/model/encoder"));
  EXPECT_FALSE(exists(from.id(), "/model/decoder/deeper"));

  const File to = create_file(folder_.file("to.h5"));
  copy_object(from.id(), "/", to.id(), "/ranks/00003");
  const Group copied = open_group(to.id(), "/ranks/00003");
  EXPECT_EQ(read_int_attribute(copied.id(), "rank"), 3);
  EXPECT_EQ(read_all<float>(open_dataset(copied.id(), "model/features.0.weight")),
            (std::vector<float>{1, 2}));
  remove_link(to.id(), "/ranks/00003");
  EXPECT_FALSE(exists(to.id(), "/ranks/00003"));
}

TEST_F(FileTest, ALinkLeadsToTheFileOfARankAndToNoOther) {
  std::filesystem::create_directory(folder_.file("ranks"));
  for (const char* name : {"ranks/rank-00000.h5", "part.h5"})
    write_dataset<float>(create_file(folder_.file(name)).id(), "x", {1}, std::vector<float>{5});
  ASSERT_EQ(::mkfifo(folder_.file("ranks/rank-00002.h5").c_str(), 0600), 0);  // without a writer
  const File file = create_file(folder_.file("whole.h5"));
  link_external(file.id(), "/ranks/00000", "ranks/rank-00000.h5", "/");
  link_external(file.id(), "/ranks/00001", "ranks/rank-00001.h5", "/");
  link_external(file.id(), "/ranks/00002", "ranks/rank-00002.h5", "/");
  link_external(file.id(), "/foreign", "part.h5", "/");
  ASSERT_GE(H5Lcreate_soft("/foreign/x", file.id(), "/around", H5P_DEFAULT, H5P_DEFAULT), 0);
  EXPECT_EQ(read_all<float>(open_dataset(file.id(), "/ranks/00000/x")), (std::vector<float>{5}));
  EXPECT_TRUE(exists(file.id(), "/ranks/00000/x"));
  EXPECT_TRUE(has_link(file.id(), "/ranks/00001"));
  EXPECT_FALSE(exists(file.id(), "/ranks/00001"));
  EXPECT_FALSE(exists(file.id(), "/ranks/00002"));
  EXPECT_FALSE(exists(file.id(), "/around"));
  for (const char* path : {"/foreign", "/foreign/x"}) EXPECT_THROW(exists(file.id(), path), Error) << path;
  for (const char* path : {"/around", "/foreign/x", "/ranks/00002/x"})
    EXPECT_THROW(open_dataset(file.id(), path), Error) << path;
  EXPECT_THROW(open_group(file.id(), "/foreign"), Error);
}

TEST_F(FileTest, AHandleMovesWithoutClosingTwice) {
  File first = create_file(folder_.file("a.h5"));
  const hid_t id = first.id();
  File second(std::move(first));
  EXPECT_EQ(second.id(), id);
  EXPECT_FALSE(first.is_open());
  first = create_file(folder_.file("b.h5"));
  second = std::move(first);  // closes a.h5
  EXPECT_LT(H5Iget_ref(first.id()), 0);
  second.close();
  EXPECT_FALSE(second.is_open());
  second.close();  // nothing twice
}

TEST(LibraryTest, TryLockSaysThatAnotherBurstIsRunning) {
  Library library;
  {
    const auto lock = library.lock();
    EXPECT_FALSE(library.try_lock().owns_lock());
  }
  EXPECT_TRUE(library.try_lock().owns_lock());
}

}  // namespace
}  // namespace dtrain::h5
