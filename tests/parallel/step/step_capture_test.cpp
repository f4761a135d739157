#include "parallel/step/step_capture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "parallel/step/repeated_work.hpp"

namespace dtrain::parallel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A device whose work is words: they are written down when they are done, or kept while a graph is captured.
struct FakeDevice {
  std::vector<std::string> done;
  std::vector<std::string>* capturing = nullptr;
  bool fails_at_end = false;
  int abandoned = 0;
  int graphs = 0;  // that are alive

  void give(const std::string& word) { (capturing != nullptr ? *capturing : done).push_back(word); }
};

class FakeGraph final : public DeviceGraph {
 public:
  explicit FakeGraph(FakeDevice& device) : device_(device) { ++device_.graphs; }
  ~FakeGraph() override { --device_.graphs; }
  FakeGraph(const FakeGraph&) = delete;
  FakeGraph& operator=(const FakeGraph&) = delete;
  void begin() override { device_.capturing = &words_; }
  void end() override {
    device_.capturing = nullptr;
    if (device_.fails_at_end) throw std::runtime_error("cannot be replayed");
  }
  void abandon() noexcept override {
    device_.capturing = nullptr;
    ++device_.abandoned;
  }
  void replay() override {
    for (const auto& word : words_) device_.done.push_back(word);
  }

 private:
  FakeDevice& device_;
  std::vector<std::string> words_;
};

class FakeGraphs final : public DeviceGraphs {
 public:
  explicit FakeGraphs(FakeDevice& device) : device_(device) {}
  std::unique_ptr<DeviceGraph> make() const override { return std::make_unique<FakeGraph>(device_); }

 private:
  FakeDevice& device_;
};

class Spans final : public SpanSink {
 public:
  explicit Spans(FakeDevice& device) : device_(device) {}
  void enter(Phase /*phase*/, std::string_view name) override {
    device_.done.push_back("<" + std::string(name));
  }
  void leave() override { device_.done.emplace_back(">"); }
  void overlapped(Phase, std::string_view, std::int64_t, std::int64_t) override {}
  void moved(std::int64_t, std::int64_t) override {}

 private:
  FakeDevice& device_;
};

class StepCaptureTest : public testing::Test {
 protected:
  auto tell(const std::string& word) {
    return [this, word] { device_.done.push_back(word); };
  }

  FakeDevice device_;
  FakeGraphs graphs_{device_};
  Spans spans_{device_};
  StepCapture capture_{spans_, graphs_};
};

TEST_F(StepCaptureTest, ReplaysWhatTheDeviceAndTheCpuDidInTheirOrder) {
  const auto step = capture_.capture([&] {
    capture_.repeat(tell("read"));
    {
      const ScopedSpan span(capture_, Phase::forward, "forward");
      device_.give("a");
      const ScopedSpan inner(capture_, Phase::forward, "inner");  // part of the graph: not told
      device_.give("b");
    }
    const ScopedSpan span(capture_, Phase::backward, "backward");
    device_.give("c");
    capture_.repeat(tell("count"));
    capture_.repeat_between(tell("send"));
    device_.give("d");
    capture_.repeat(tell("last"));
  });
  EXPECT_THAT(device_.done, IsEmpty()) << "a capture does nothing";
  EXPECT_EQ(step.graphs(), 3U);
  for (int times = 0; times < 2; ++times) {
    device_.done.clear();
    step.replay();
    EXPECT_THAT(device_.done, ElementsAre("read", "<forward", "a", "b", ">", "<backward", "c", "count",
                                          "send", "d", "last", ">"));
  }
}

TEST_F(StepCaptureTest, PassesSpansOnWhileNothingIsCaptured) {
  {
    const ScopedSpan span(capture_, Phase::forward, "forward");
    device_.give("a");
  }
  EXPECT_THAT(device_.done, ElementsAre("<forward", "a", ">"));
}

TEST_F(StepCaptureTest, SpansOfOtherPhasesHaveNoGraph) {
  const auto step = capture_.capture([&] { const ScopedSpan span(capture_, Phase::pipeline_idle, "wait"); });
  EXPECT_EQ(step.graphs(), 0U);
  step.replay();
  EXPECT_THAT(device_.done, ElementsAre("<wait", ">"));
}

TEST_F(StepCaptureTest, AGraphOfItsOwnHasAllThatIsGivenWhateverSpansThereAre) {
  const auto graph = capture_.graph_of([&] {
    const ScopedSpan span(capture_, Phase::optimizer, "update");
    device_.give("a");
    device_.give("b");
  });
  EXPECT_THAT(device_.done, ElementsAre("<update", ">")) << "spans are those of the capture";
  device_.done.clear();
  graph->replay();
  EXPECT_THAT(device_.done, ElementsAre("a", "b"));
  EXPECT_THROW(capture_.graph_of([] { throw std::runtime_error("waits for the device"); }),
               std::runtime_error);
  EXPECT_EQ(device_.abandoned, 1);
  EXPECT_EQ(device_.capturing, nullptr);
}

TEST_F(StepCaptureTest, RepeatedWorkIsReplayedForNumbersThatItWasCapturedFor) {
  std::vector<std::string> news;
  RepeatedWork work(capture_, "the update", [&](const std::string& line) { news.push_back(line); });
  int given = 0;  // operation by operation
  for (int step = 0; step < 6; ++step) {
    work.run({1.0}, [&] {
      ++given;
      device_.give("a");
    });
  }
  EXPECT_EQ(device_.done, std::vector<std::string>(6, "a"));
  EXPECT_EQ(given, 4) << "three steps, and the capture";
  work.run({2.0}, [&] { device_.give("b"); });
  work.run({1.0}, [&] { device_.give("c"); });
  EXPECT_EQ(device_.done.at(6), "b") << "other numbers were not captured";
  EXPECT_EQ(device_.done.at(7), "a");
  EXPECT_THAT(news, ElementsAre("the update is replayed in 1 part"));
}

TEST_F(StepCaptureTest, RepeatedWorkThatCannotBeCapturedIsGivenAsBefore) {
  std::vector<std::string> news;
  RepeatedWork work(capture_, "the update", [&](const std::string& line) { news.push_back(line); });
  for (int step = 0; step < 6; ++step) {
    work.run({}, [&] {
      if (device_.capturing != nullptr) throw Error("it waits for the device", {.subject = "norm"});
      device_.give("a");
    });
  }
  EXPECT_EQ(device_.done, std::vector<std::string>(6, "a"));
  EXPECT_THAT(news, ElementsAre(testing::HasSubstr("not captured: ")));
}

TEST_F(StepCaptureTest, WhatFailsLeavesNothingAndTheNextStepIsAsBefore) {
  EXPECT_THROW(capture_.capture([&] {
    { const ScopedSpan span(capture_, Phase::forward, "forward"); }
    EXPECT_EQ(device_.graphs, 1);
    const ScopedSpan span(capture_, Phase::backward, "backward");
    device_.give("a");
    capture_.repeat(tell("count"));
    throw std::runtime_error("an operation that waits for the device");
  }),
               std::runtime_error);
  EXPECT_FALSE(capture_.capturing());
  EXPECT_EQ(device_.graphs, 0) << "they hold memory";
  EXPECT_THAT(device_.done, IsEmpty());
  EXPECT_EQ(device_.capturing, nullptr);
  { const ScopedSpan span(capture_, Phase::forward, "forward"); }
  EXPECT_THAT(device_.done, ElementsAre("<forward", ">"));
}

TEST_F(StepCaptureTest, AGraphThatCannotBeReplayedIsToldWhenTheStepIsThrough) {
  EXPECT_THROW(capture_.capture([&] {
    { const ScopedSpan span(capture_, Phase::forward, "forward"); }
    device_.fails_at_end = true;
    {
      const ScopedSpan span(capture_, Phase::forward, "forward");
      device_.give("a");
      capture_.repeat(tell("count"));
    }
    const ScopedSpan span(capture_, Phase::backward, "backward");  // no other graph is begun
    EXPECT_EQ(device_.capturing, nullptr);
  }),
               std::runtime_error);
  EXPECT_EQ(device_.abandoned, 1);
  EXPECT_EQ(device_.graphs, 0) << "they hold memory";
  EXPECT_FALSE(capture_.capturing());
  device_.fails_at_end = false;
  const auto step = capture_.capture([&] { const ScopedSpan span(capture_, Phase::forward, "forward"); });
  step.replay();
  EXPECT_THAT(device_.done, ElementsAre("<forward", ">")) << "nothing of the capture that failed";
}

}  // namespace
}  // namespace dtrain::parallel
