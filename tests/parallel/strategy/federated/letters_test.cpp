#include "parallel/strategy/federated/secure/letters.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/job_of_test.hpp"

namespace dtrain::parallel {
namespace {

using secure_aggregation::Bytes;
using secure_aggregation::View;

/// Of odd lengths, and none.
Bytes letter_of(int rank, int index) {
  Bytes bytes(static_cast<std::size_t>(index * 7 % 23 + (index == 5 ? 100'000 : 0)));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(rank * 31 + index + static_cast<int>(i));
  return bytes;
}

TEST(LettersTest, AllLettersComeInTheOrderOfTheirSenderWithSignsOfLifeBetween) {
  JobOfTest job;
  Letters letters(job.data(), job.queue());
  letters.expect_at_most(200'000);
  if (job.rank() == 0) {
    std::map<int, int> next;
    letters.receive_all(1, [&](int rank, int client, View bytes) {
      EXPECT_EQ(client, next[rank]);
      EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), letter_of(rank, next[rank]));
      ++next[rank];
    });
    for (int rank = 1; rank < job.data().size(); ++rank) {
      EXPECT_EQ(next[rank], 6 + rank);
      letters.send(rank, 9, letter_of(0, rank));
      letters.send_end(rank, rank == 1 ? Letters::End::failed : Letters::End::phase);
    }
  } else {
    for (int index = 0; index < 6 + job.rank(); ++index) {
      letters.send_life_sign(0);
      letters.send(0, index, letter_of(job.rank(), index));
    }
    letters.send_end(0);
    int came = 0;
    const auto end = letters.receive(0, [&](int rank, int client, View bytes) {
      EXPECT_EQ(rank, 0);
      EXPECT_EQ(client, 9);
      EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), letter_of(0, job.rank()));
      ++came;
    });
    EXPECT_EQ(came, 1);
    EXPECT_EQ(end, job.rank() == 1 ? Letters::End::failed : Letters::End::phase);
  }
}

TEST(LettersTest, ALetterThatIsTooLongIsRefusedBeforeThereIsMemoryForIt) {
  JobOfTest job;
  Letters letters(job.data(), job.queue());
  letters.expect_at_most(10);
  if (job.rank() == 1) {
    std::vector<std::int64_t> header = {0, 3, std::int64_t{1} << 50};
    job.data().send(comm::Buffer::of(std::span<std::int64_t>(header)), 0).wait();
  } else if (job.rank() == 0) {
    try {
      letters.receive(1, [](int, int, View) { ADD_FAILURE(); });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1: sends what is no message of a secure sum"),
                std::string::npos)
          << error.what();
    }
  }
  job.data().barrier().wait();
}

}  // namespace
}  // namespace dtrain::parallel
