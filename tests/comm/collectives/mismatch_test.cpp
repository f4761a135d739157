// Calls that do not match end in an error that says who called what, not in a wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/job.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

enum class Nodes { one, one_per_rank };

int nodes_of(Nodes nodes) {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return nodes == Nodes::one ? 1 : size;
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CallsTest, CountsThatDifferAreNamed) {
  Job job;
  if (job.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  std::vector<float> values(job.rank() == 0 ? 100 : 101);
  const std::string text =
      error_of([&] { job.groups.world().all_reduce(Buffer::of(std::span(values)), ReduceOp::sum).wait(); });
  EXPECT_THAT(text, AllOf(HasSubstr("all_reduce number 1 of group world"), HasSubstr("of 100 float32"),
                          HasSubstr("of 101 float32")));
  EXPECT_TRUE(job.groups.queue().failed());
  EXPECT_EQ(error_of([&] { job.groups.world().barrier(); }), text);  // and every later call says the same
  job.world.barrier();
}

class MismatchTest : public testing::TestWithParam<Nodes> {};

TEST_P(MismatchTest, TypesOperationsAndOrdersThatDifferAreNamed) {
  const auto differing = [](auto&& call) {
    Job job(nodes_of(GetParam()), {.timeout_s = 2});
    if (job.size() == 1) return std::string("one rank");
    std::string text = error_of([&] { call(job); });
    job.world.barrier();
    return text;
  };
  std::vector<std::int32_t> values(1000);
  const Buffer integers = Buffer::of(std::span(values));
  const Buffer floats = {values.data(), values.size(), DataType::float32};
  // A rank that agrees with the one before it, on another node, waits for those that have failed.
  const auto one_of = [](const char* what) {
    return testing::AnyOf(HasSubstr(what), "one rank", HasSubstr("not complete after"), HasSubstr("gave up"));
  };
  EXPECT_THAT(differing([&](Job& job) {
                job.groups.world().all_reduce(job.rank() == 0 ? integers : floats, ReduceOp::sum).wait();
              }),
              one_of("1000 int32"));
  EXPECT_THAT(differing([&](Job& job) {
                job.groups.world().all_reduce(floats, job.rank() == 0 ? ReduceOp::max : ReduceOp::sum).wait();
              }),
              one_of("max"));
  EXPECT_THAT(differing([&](Job& job) {
                const auto algorithm = job.rank() == 0 ? Algorithm::ring : Algorithm::tree;
                job.groups.world().all_reduce(floats, ReduceOp::sum, algorithm).wait();
              }),
              one_of("ring"));
  EXPECT_THAT(differing([&](Job& job) {
                if (job.rank() == 0)
                  job.groups.world().barrier().wait();
                else
                  job.groups.world().broadcast(floats, 0).wait();
              }),
              one_of("calls barrier"));
  EXPECT_THAT(differing([&](Job& job) {
                job.groups.world()
                    .all_to_all(integers.part(0, job.rank() == 0 ? 600 : 606),
                                integers.part(0, job.rank() == 0 ? 600 : 606))
                    .wait();
              }),
              one_of("606 int32"));
}

INSTANTIATE_TEST_SUITE_P(Places, MismatchTest, testing::Values(Nodes::one, Nodes::one_per_rank),
                         [](const auto& param) {
                           return param.param == Nodes::one ? "one_node" : "a_node_each";
                         });

TEST(NodesTest, AtLeastOneRankOfDifferingNodesNamesTheCalls) {
  int named = 0;
  {
    Job job(nodes_of(Nodes::one_per_rank), {.timeout_s = 2});
    if (job.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
    std::vector<float> values(1000);
    const Buffer floats = Buffer::of(std::span(values));
    const std::string text = error_of([&] {
      job.groups.world().all_reduce(floats, job.rank() == 0 ? ReduceOp::max : ReduceOp::sum).wait();
    });
    named = text.find("calls all_reduce of 1000 float32, max") != std::string::npos ? 1 : 0;
    EXPECT_EQ(job.world.max(std::int64_t{named}), 1);
  }
}

TEST(NodesTest, OfLaterCallsAllAreComparedWhenAsked) {
  Job job(nodes_of(Nodes::one_per_rank), {.timeout_s = 2, .compares_all = true});
  if (job.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  for (int i = 0; i < 40; ++i) job.groups.world().barrier().wait();
  std::vector<float> values(1000);
  const Buffer floats = Buffer::of(std::span(values));
  const std::string text = error_of(
      [&] { job.groups.world().all_reduce(floats, job.rank() == 0 ? ReduceOp::max : ReduceOp::sum).wait(); });
  EXPECT_NE(text, "no error");
  EXPECT_EQ(job.world.max(std::int64_t{text.find("float32, max") != std::string::npos ? 1 : 0}), 1);
}

TEST(CallsTest, OneRankInSharedMemoryAndAnotherNotIsNamed) {
  Job job;
  constexpr std::size_t kCount = 100'000;
  const auto shared = job.groups.world().allocate(kCount * sizeof(float));
  if (job.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  std::vector<float> ordinary(kCount);
  void* const data = job.rank() == 0 ? shared->data() : ordinary.data();
  EXPECT_THAT(error_of([&] {
                job.groups.world().all_reduce({data, kCount, DataType::float32}, ReduceOp::sum).wait();
              }),
              HasSubstr("allocate()"));
  job.world.barrier();
}

TEST(CallsTest, ArgumentsAreCheckedAtTheCall) {
  Job job;
  Group& world = job.groups.world();
  std::vector<float> values(10);
  std::vector<double> doubles(10);
  const Buffer buffer = Buffer::of(std::span(values));
  EXPECT_THAT(error_of([&] {
                world.all_reduce({nullptr, 10, DataType::float32}, ReduceOp::sum);
              }),
              HasSubstr("no memory"));
  EXPECT_THAT(error_of([&] { world.broadcast(buffer, job.size()); }), HasSubstr("there is no rank"));
  EXPECT_THAT(error_of([&] { world.send(buffer, -1); }), HasSubstr("there is no rank"));
  EXPECT_THAT(error_of([&] { world.all_gather(buffer, Buffer::of(std::span(doubles))); }),
              HasSubstr("output is float64"));
  std::vector<float> too_long(11 * static_cast<std::size_t>(job.size()));
  EXPECT_THAT(error_of([&] { world.reduce_scatter(Buffer::of(std::span(too_long)), buffer, ReduceOp::sum); }),
              HasSubstr("not 10"));
  EXPECT_THAT(error_of([&] { world.all_to_all(buffer, Buffer::of(std::span(too_long))); }),
              HasSubstr("equal blocks"));
  EXPECT_FALSE(job.groups.queue().failed());
}

TEST(CallsTest, ALimitNamesWhoHasNotArrived) {
  Job job(1, {.timeout_s = 0.2});
  if (job.size() == 1) GTEST_SKIP() << "nobody to wait for";
  const int late = job.size() - 1;
  if (job.rank() != late) {
    std::vector<float> values(100'000);
    try {
      job.groups.world().all_reduce(Buffer::of(std::span(values)), ReduceOp::sum).wait();
      ADD_FAILURE() << "the wait ended though a rank never came";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::lost_rank);
      EXPECT_THAT(error.what(),
                  testing::AnyOf(AllOf(HasSubstr("all_reduce number 1 of group world"),
                                       HasSubstr("rank " + std::to_string(late) + " is missing")),
                                 HasSubstr("gave up")));  // said by whoever came first
    }
  }
  job.world.barrier();
}

}  // namespace
}  // namespace dtrain::comm
