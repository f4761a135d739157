// Calls of the C library are taken over here, to look at the moment and to fail on request.
#include "comm/shared_memory/shared_memory.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "comm/watch/health.hpp"
#include "core/error.hpp"

namespace {

std::vector<nlink_t> names_when_reserved;
int names_made = 0;
bool knows_unnamed_files = true;
bool fails_to_make_robust = false;

bool is_robust(const pthread_mutexattr_t* attributes) {
  int robust = PTHREAD_MUTEX_STALLED;
  return attributes != nullptr && pthread_mutexattr_getrobust(attributes, &robust) == 0 &&
         robust == PTHREAD_MUTEX_ROBUST;
}

}  // namespace

extern "C" int posix_fallocate(int fd, off_t offset, off_t bytes) noexcept {
  struct stat facts = {};
  ::fstat(fd, &facts);
  names_when_reserved.push_back(facts.st_nlink);
  return ::fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

extern "C" int shm_open(const char* name, int flags, mode_t mode) noexcept {
  ++names_made;
  using Open = int (*)(const char*, int, mode_t);
  static const auto real = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "shm_open"));
  return real(name, flags, mode);
}

extern "C" int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if ((flags & O_TMPFILE) == O_TMPFILE && !knows_unnamed_files) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int pthread_mutex_init(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes) noexcept {
  if (fails_to_make_robust && is_robust(attributes)) return ENOMEM;
  using Init = int (*)(pthread_mutex_t*, const pthread_mutexattr_t*);
  static const auto real = reinterpret_cast<Init>(::dlsym(RTLD_NEXT, "pthread_mutex_init"));
  return real(mutex, attributes);
}

namespace dtrain::comm {
namespace {

/// Robust mutexes that this thread holds, as the kernel would release them at its death.
bool holds_robust_mutexes() {
  robust_list_head* head = nullptr;
  std::size_t length = 0;
  if (::syscall(SYS_get_robust_list, 0, &head, &length) != 0 || head == nullptr) return false;
  return head->list.next != &head->list;
}

TEST(SharedMemoryTest, IsReservedWhenItsNameIsGone) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  names_when_reserved.clear();
  const auto memory = SharedMemory::create(world, 5000);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(names_when_reserved, std::vector<nlink_t>{0});
}

// A rank that is killed while others make memory would leave the name.
TEST(SharedMemoryTest, HasNoNameAtAnyTime) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  names_made = 0;
  ASSERT_TRUE(SharedMemory::create(world, 5000).has_value());
  EXPECT_EQ(names_made, 0);
}

void is_seen_by_all_ranks_and_zero_filled() {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto memory = SharedMemory::create(world, 100'000);
  ASSERT_TRUE(memory.has_value());
  for (std::size_t i = 0; i < 100'000; ++i) ASSERT_EQ(memory->part(world.rank())[i], std::byte{0});
  world.barrier();
  memory->part(world.rank())[99'999] = static_cast<std::byte>(world.rank() + 1);
  world.barrier();
  for (int rank = 0; rank < world.size(); ++rank)
    EXPECT_EQ(memory->part(rank)[99'999], static_cast<std::byte>(rank + 1));
  world.barrier();
}

TEST(SharedMemoryTest, IsSeenByAllRanksAndZeroFilled) { is_seen_by_all_ranks_and_zero_filled(); }

TEST(SharedMemoryTest, IsMadeByANameWhereOneRankCannotDoWithout) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  knows_unnamed_files = false;
  names_made = 0;
  is_seen_by_all_ranks_and_zero_filled();
  EXPECT_EQ(names_made, 1);
  names_when_reserved.clear();
  EXPECT_TRUE(SharedMemory::create(world, 5000).has_value());
  EXPECT_EQ(names_when_reserved, std::vector<nlink_t>{0});
  knows_unnamed_files = true;
}

TEST(SharedMemoryTest, WhatHasNoRoomIsEmptyOnAllRanks) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  EXPECT_FALSE(SharedMemory::create(world, std::size_t{1} << 45).has_value());
}

TEST(HealthTest, LeavesNoHeldMutexWhereAnotherRankCannotMakeItsOwn) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "one rank holds no mutex";
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(rank);
  EXPECT_FALSE(holds_robust_mutexes());
  {
    const Health health(world, world, ranks, false);
    EXPECT_TRUE(holds_robust_mutexes());
  }
  EXPECT_FALSE(holds_robust_mutexes());
  fails_to_make_robust = world.rank() == 0;
  EXPECT_THROW(Health(world, world, ranks, false), Error);
  fails_to_make_robust = false;
  EXPECT_FALSE(holds_robust_mutexes());
}

}  // namespace
}  // namespace dtrain::comm
