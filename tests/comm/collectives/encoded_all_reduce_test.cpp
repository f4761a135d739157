// Sums that cross between nodes in another form, on invented nodes of one or more ranks.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/encoding.hpp"
#include "comm/job.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

/// Each node gives its values, less one, to all others: 4 bytes more than they have. What it adds up is seen
/// by the ones that are missing.
class LessOne final : public MessageRounds {
 public:
  LessOne(std::span<float> values, int node, int nodes) : values_(values), node_(node), nodes_(nodes) {}

  std::optional<Round> next() override {
    if (begun_) {
      for (int node = 0; node < nodes_; ++node) {
        for (std::size_t i = 0; node != node_ && i < values_.size(); ++i)
          values_[i] += (*arriving_[static_cast<std::size_t>(node)])[i];
      }
      for (auto& value : values_) value -= 1;  // of its own: the same on all nodes
      return std::nullopt;
    }
    begun_ = true;
    const auto mine = std::make_shared<std::vector<float>>(values_.begin(), values_.end());
    for (auto& value : *mine) value -= 1;
    mine->push_back(0);
    Round round;
    for (int node = 0; node < nodes_; ++node) {
      arriving_.push_back(std::make_shared<std::vector<float>>(mine->size()));
      const bool own = node == node_;
      const auto& into = arriving_.back();
      round.outgoing.push_back(own ? Buffer() : Buffer{mine->data(), mine->size(), DataType::float32, mine});
      round.incoming.push_back(own ? Buffer() : Buffer{into->data(), into->size(), DataType::float32, into});
    }
    return round;
  }

 private:
  std::span<float> values_;
  int node_;
  int nodes_;
  bool begun_ = false;
  std::vector<std::shared_ptr<std::vector<float>>> arriving_;
};

class FakeEncoding final : public Encoding {
 public:
  enum class Form { lanes, whole, none };
  explicit FakeEncoding(Form form, std::uint16_t id = 9) : form_(form), id_(id) {}

  std::uint16_t id() const override { return id_; }
  bool takes_whole_buffers() const override { return form_ == Form::whole; }
  std::size_t bytes(std::size_t count) const override { return 4 * count; }
  std::unique_ptr<MessageRounds> begin(std::span<float> values, std::size_t first, int node,
                                       int nodes) override {
    parts.emplace_back(first, values.size());
    return form_ == Form::none ? nullptr : std::make_unique<LessOne>(values, node, nodes);
  }

  std::vector<std::pair<std::size_t, std::size_t>> parts;

 private:
  Form form_;
  std::uint16_t id_;
};

using Form = FakeEncoding::Form;

void fill(std::span<float> values, int rank) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 97) + static_cast<float>(rank);
}

TEST(EncodedAllReduceTest, OnlyWhatCrossesBetweenNodesIsEncoded) {
  for (const int nodes : {1, 2, 3}) {
    Job job(nodes);
    auto& group = job.groups.world();
    const int used = std::min(nodes, job.size());
    for (const std::size_t count : {0U, 1U, 1000U, 100'003U, 2'200'001U}) {
      for (const auto form : {Form::lanes, Form::whole, Form::none}) {
        for (const bool shared : {false, true}) {
          if (count > 2'000'000 && (form != Form::lanes || !shared)) continue;  // several chunks: once
          std::vector<float> plain(shared ? 0 : count);
          const auto memory = shared ? group.allocate(std::max<std::size_t>(4 * count, 64)) : nullptr;
          const std::span<float> values(shared ? static_cast<float*>(memory->data()) : plain.data(), count);
          fill(values, job.rank());
          FakeEncoding encoding(form);
          group.all_reduce_encoded(Buffer::of(values), encoding).wait();
          const float missing = form == Form::none || used == 1 ? 0 : static_cast<float>(used);
          const float ranks = static_cast<float>(job.size() * (job.size() - 1)) / 2;
          bool right = true;
          for (std::size_t i = 0; i < count; ++i)
            right &=
                values[i] == static_cast<float>(i % 97) * static_cast<float>(job.size()) + ranks - missing;
          EXPECT_TRUE(right) << count << " values on " << used << " nodes";
          EXPECT_TRUE(used > 1 || encoding.parts.empty());
          EXPECT_TRUE(form != Form::whole || encoding.parts.size() <= 1);
          for (const auto& [first, length] : encoding.parts) EXPECT_LE(first + length, count);
        }
      }
    }
  }
}

TEST(EncodedAllReduceTest, SeveralAreInFlight) {
  Job job(2);
  std::vector<std::vector<float>> all(6, std::vector<float>(70'000));
  std::vector<Handle> handles;
  FakeEncoding encoding(Form::lanes);
  for (auto& values : all) {
    fill(values, job.rank());
    handles.push_back(job.groups.data().all_reduce_encoded(Buffer::of(std::span(values)), encoding));
  }
  for (const auto& handle : handles) handle.wait();
  for (const auto& values : all) EXPECT_EQ(values, all.front());
}

TEST(EncodedAllReduceTest, BytesAreCountedAsTheyTravel) {
  Job job(2);
  if (job.size() < 2) GTEST_SKIP() << "nothing travels";
  std::vector<float> values(1000, 1.0F);
  std::vector<MovedBytes> before;
  job.groups.traffic().take(before);
  FakeEncoding encoding(Form::whole);
  job.groups.world().all_reduce_encoded(Buffer::of(std::span(values)), encoding).wait();
  std::vector<MovedBytes> moved(static_cast<std::size_t>(job.size()));
  job.groups.traffic().take(moved);
  const int half = (job.size() + 1) / 2;
  EXPECT_TRUE(job.rank() != 0 || moved[static_cast<std::size_t>(half)].sent == 4004);
}

TEST(EncodedAllReduceTest, OtherTypesAndOtherEncodingsAreRefused) {
  Job job(2);
  if (job.size() < 2) GTEST_SKIP() << "nothing crosses";
  std::vector<double> wide(10);
  FakeEncoding encoding(Form::lanes);
  EXPECT_THROW(job.groups.world().all_reduce_encoded(Buffer::of(std::span(wide)), encoding), Error);
  std::vector<float> values(10);
  FakeEncoding different(Form::lanes, static_cast<std::uint16_t>(20 + job.rank() * 2 / job.size()));
  try {
    job.groups.world().all_reduce_encoded(Buffer::of(std::span(values)), different).wait();
    ADD_FAILURE() << "the nodes encode differently";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("encoding 2"), std::string::npos) << error.what();
  }
  // The node that sees it first stays until its own call has arrived: else the other would wait for it.
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
}  // namespace dtrain::comm
