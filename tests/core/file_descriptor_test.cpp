#include "core/file_descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/shared_file.hpp"

namespace dtrain {
namespace {

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; }

FileDescriptor opened() { return FileDescriptor(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

TEST(FileDescriptorTest, ClosesWithItsLastOwner) {
  int number = -1;
  {
    FileDescriptor first = opened();
    number = first.get();
    const FileDescriptor second = std::move(first);
    EXPECT_EQ(second.get(), number);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(FileDescriptorTest, ClosesWhatItHeldOnMoveAssignment) {
  FileDescriptor target = opened();
  const int held = target.get();
  target = opened();
  EXPECT_FALSE(is_open(held));
  EXPECT_TRUE(target.is_open());
}

TEST(FileDescriptorTest, KeepsErrnoAndSaysWhenClosingFails) {
  {
    const FileDescriptor file = opened();
    const int number = file.get();
    ASSERT_EQ(::close(number), 0);  // behind its back: its own close fails with EBADF
    errno = ENOSPC;
  }
  EXPECT_EQ(errno, ENOSPC);
  FileDescriptor file = opened();
  EXPECT_TRUE(file.close());
  EXPECT_FALSE(file.is_open());
  FileDescriptor taken = opened();
  ASSERT_EQ(::close(taken.get()), 0);
  EXPECT_FALSE(taken.close());
}

TEST(SharedMappingTest, TwoMappingsOfAFileShareItsBytesAndOutliveTheDescriptor) {
  SharedMapping one;
  SharedMapping other;
  {
    const FileDescriptor file(::memfd_create("dtrain-test", MFD_CLOEXEC));
    ASSERT_TRUE(file.is_open());
    ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
    one = SharedMapping(file, 4096);
    other = SharedMapping(file, 4096);
  }
  ASSERT_FALSE(one.is_empty() || other.is_empty());
  one.data()[17] = std::byte{42};
  EXPECT_EQ(other.data()[17], std::byte{42});
  EXPECT_EQ(other.bytes(), 4096U);
}

TEST(SharedMappingTest, IsEmptyWithAReasonWhereTheFileCannotBeMapped) {
  errno = 0;
  EXPECT_TRUE(SharedMapping(FileDescriptor(), 4096).is_empty());
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace dtrain
