#include "comm/mpi/transfer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "core/error.hpp"

namespace {
std::atomic<int> tests_of_requests = 0;
}

/// MPI's profiling interface: what the library calls comes here first.
extern "C" int MPI_Test(MPI_Request* request, int* complete, MPI_Status* status) {
  ++tests_of_requests;
  return PMPI_Test(request, complete, status);
}

/// What a send is asked by, in jobs that may lose ranks.
extern "C" int MPI_Request_get_status(MPI_Request request, int* complete, MPI_Status* status) {
  ++tests_of_requests;
  return PMPI_Request_get_status(request, complete, status);
}

namespace dtrain::comm {
namespace {

void wait(Transfer& transfer) {
  while (!transfer.test()) {
  }
}

std::vector<std::uint8_t> counting(std::size_t bytes, int from) {
  std::vector<std::uint8_t> values(bytes);
  std::iota(values.begin(), values.end(), static_cast<std::uint8_t>(from));
  return values;
}

TEST(TransferTest, LongMessagesOfTheSameRanksAreNotMixed) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const Channel channel = {.comm = world.handle(), .tag = 7, .piece_bytes = 1000};
  const auto first = counting(3500, 1);
  const auto second = counting(2000, 99);
  if (world.rank() == 0) {
    Transfer one = Transfer::send(channel, first.data(), first.size(), 1);
    Transfer other = Transfer::send(channel, second.data(), second.size(), 1);
    wait(other);
    wait(one);
  } else {
    std::vector<std::uint8_t> got(first.size());
    std::vector<std::uint8_t> got_second(second.size());
    Transfer one = Transfer::receive(channel, got.data(), got.size(), 0);
    Transfer other = Transfer::receive(channel, got_second.data(), got_second.size(), 0);
    wait(one);
    wait(other);
    EXPECT_EQ(got, first);
    EXPECT_EQ(got_second, second);
  }
  world.barrier();
}

TEST(TransferTest, AnotherNumberOfBytesIsNamed) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const Channel channel = {.comm = world.handle(), .tag = 7};
  std::vector<std::uint8_t> values(100);
  if (world.rank() == 0) {
    Transfer message = Transfer::send(channel, values.data(), 60, 1);
    wait(message);
  } else {
    Transfer message = Transfer::receive(channel, values.data(), 100, 0);
    EXPECT_THROW(wait(message), Error);
  }
  world.barrier();
}

// A message that is announced, but not sent yet: its receive can neither be cancelled nor is it complete.
TEST(TransferTest, GivenUpItWritesOnlyToMemoryThatIsKept) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const Channel channel = {.comm = world.handle(), .tag = 7};
  if (world.rank() == 0) {
    const auto values = std::make_shared<std::vector<std::uint8_t>>(kBytes, std::uint8_t{5});
    world.barrier();  // both receives are posted
    std::vector<Transfer> sends;
    sends.push_back(Transfer::send(channel, values->data(), kBytes, 1, values));
    sends.push_back(Transfer::send(channel, values->data(), kBytes, 1, values));
    world.barrier();  // both are given up
    for (int i = 0; i < 1000; ++i) sends[0].test();
  } else {
    std::vector<std::uint8_t> borrowed(kBytes, std::uint8_t{1});
    const auto owned = std::make_shared<std::vector<std::uint8_t>>(kBytes, std::uint8_t{1});
    const std::weak_ptr<std::vector<std::uint8_t>> watched = owned;
    {
      Transfer of_borrowed = Transfer::receive(channel, borrowed.data(), kBytes, 0);
      Transfer of_owned = Transfer::receive(channel, owned->data(), kBytes, 0, owned);
      world.barrier();
      for (int i = 0; i < 100; ++i) of_owned.test();  // the announcements are taken
    }
    world.barrier();
    for (int i = 0; i < 1000; ++i) in_use(nullptr, 0);  // drives MPI
    EXPECT_TRUE(std::ranges::all_of(borrowed, [](std::uint8_t value) { return value == 1; }));
    EXPECT_EQ(watched.use_count() > 1, in_use(owned->data(), kBytes));
  }
  world.barrier();
}

// A rank that is lost leaves messages of thousands of pieces behind: those that give them up must not come
// minutes late to the others, who agree meanwhile on the ranks that are left.
TEST(TransferTest, GivingUpManyPiecesTestsEachAFewTimes) {
  constexpr int kPieces = 2000;
  constexpr std::size_t kPieceBytes = std::size_t{64} << 10;  // its receiver must agree before it leaves
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const Channel channel = {.comm = world.handle(), .tag = 7, .piece_bytes = kPieceBytes};
  const auto values = std::make_shared<std::vector<std::uint8_t>>(kPieces * kPieceBytes);
  if (world.rank() == 0) {
    const std::weak_ptr<std::vector<std::uint8_t>> watched = values;
    {
      const Transfer given_up = Transfer::send(channel, values->data(), values->size(), 1, values);
      tests_of_requests = 0;
    }
    EXPECT_GE(tests_of_requests, kPieces);
    EXPECT_LE(tests_of_requests, 4 * kPieces);
    EXPECT_TRUE(in_use(values->data() + values->size() / 2, 1));
    world.barrier();
    while (watched.use_count() > 1) in_use(nullptr, 0);  // each settled piece lets go of the memory
    EXPECT_FALSE(in_use(values->data(), values->size()));
  } else {
    world.barrier();
    Transfer message = Transfer::receive(channel, values->data(), values->size(), 0, values);
    wait(message);
  }
  world.barrier();
}

TEST(TransferTest, OwnedMemoryIsUsedWhereItLiesAndFreedWhenSettled) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const Channel channel = {.comm = world.handle(), .tag = 7};
  const auto values = std::make_shared<std::vector<std::uint8_t>>(counting(5000, 3 * world.rank()));
  if (world.rank() == 0) {
    Transfer message = Transfer::send(channel, values->data(), values->size(), 1, values);
    wait(message);
  } else {
    {
      const Transfer given_up =
          Transfer::receive({.comm = world.handle(), .tag = 8}, values->data(), 10, 0, values);
    }
    EXPECT_FALSE(in_use(values->data(), values->size()));  // cancelled: nothing was sent
    Transfer message = Transfer::receive(channel, values->data(), values->size(), 0, values);
    wait(message);
    EXPECT_EQ(*values, counting(5000, 0));
    message = Transfer();
    EXPECT_EQ(values.use_count(), 1);
  }
  world.barrier();
}

}  // namespace
}  // namespace dtrain::comm
