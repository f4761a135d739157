#include "train/recovery/run_in_parts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "core/error.hpp"
#include "train/recovery/fake_ranks.hpp"

namespace dtrain::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

RunConfig on_mesh(const std::string& mesh, int spares = 0) {
  RunConfig config;
  config.mesh = mesh;
  config.spares = spares;
  config.batch.global_batch = 64;
  config.output.overwrite = true;
  return config;
}

/// A run whose parts do what a test says: each action is one part.
class ScriptedRun {
 public:
  using Action = std::function<ExitCode(Recovery&)>;
  ScriptedRun(FakeRanks& ranks, std::vector<Action> actions) : ranks_(ranks), actions_(std::move(actions)) {}

  ExitCode operator()(const RunConfig& config) {
    return run_in_parts(
        config,
        {.train =
             [this](RunConfig& settled, Recovery& recovery) {
               settled.resolve(ranks_.at_work());
               parts.push_back(settled.mesh_shape.to_string() + " " + settled.output.name +
                               (settled.output.overwrite ? " overwrites" : "") +
                               (recovery.behind() ? " after " + recovery.behind()->in_words() : ""));
               settled.output.name = "settled";
               if (replaces) settled.output.overwrite = false;
               return actions_.at(parts.size() - 1)(recovery);
             },
         .mark_failed = [this](const RunConfig& settled) { failed.push_back(settled.output.name); }},
        ranks_);
  }

  std::vector<std::string> parts;   // mesh, name and loss of each
  std::vector<std::string> failed;  // names of runs that were given up
  bool replaces = true;             // whether a part comes so far as to remove the earlier run

 private:
  FakeRanks& ranks_;
  std::vector<Action> actions_;
};

ScriptedRun::Action ends(ExitCode code) {
  return [code](Recovery&) { return code; };
}

/// The part loses ranks and leaves them behind, as a trainer does.
ScriptedRun::Action loses(FakeRanks& ranks, const std::vector<int>& lost) {
  return [&ranks, lost](Recovery& recovery) -> ExitCode {
    ranks.lose(lost);
    recovery.leave_lost_behind(true, [](const auto&, bool) {});
    throw lost_rank();
  };
}

/// The part ends so that layers move.
ScriptedRun::Action moves(double slowness) {
  return [slowness](Recovery& recovery) {
    recovery.move_layers({.layers = {1, 1}, .slowness = {1, slowness}});
    return ExitCode::stopped;
  };
}

/// The part fails before it has anything to save.
ScriptedRun::Action fails(const Error& error) {
  return [error](Recovery&) -> ExitCode { throw error; };
}

/// The code of the Error that `run` throws.
ExitCode code_of(const std::function<void()>& run, const std::string& words) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(words));
    return error.code();
  }
  ADD_FAILURE() << "it did not fail";
  return ExitCode::success;
}

TEST(RunInPartsTest, ARunWithoutLossesIsOnePart) {
  for (const auto code : {ExitCode::success, ExitCode::stopped}) {
    FakeRanks ranks(4);
    ScriptedRun run(ranks, {ends(code)});
    EXPECT_EQ(run(on_mesh("data=4")), code);
    EXPECT_THAT(run.parts, ElementsAre("data=4,pipe=1,tensor=1  overwrites"));
    EXPECT_THAT(ranks.done, IsEmpty());
  }
}

TEST(RunInPartsTest, TheSurvivorsGoOnWithTheSameRunOnASmallerMesh) {
  FakeRanks ranks(4);
  ScriptedRun run(ranks, {loses(ranks, {1}), ends(ExitCode::success)});
  EXPECT_EQ(run(on_mesh("data=4")), ExitCode::success);
  EXPECT_THAT(run.parts, ElementsAre("data=4,pipe=1,tensor=1  overwrites",
                                     "data=3,pipe=1,tensor=1 settled after rank 1"));
  EXPECT_THAT(run.failed, IsEmpty());
}

// As a server without clients, of two ranks: it needs another rank.
TEST(RunInPartsTest, ARunThatTooFewSurvivorsCannotGoOnWithHasFailed) {
  FakeRanks ranks(2);
  const Error refusal("there is no other rank", {.code = ExitCode::usage});
  ScriptedRun run(ranks, {loses(ranks, {1}), fails(refusal)});
  EXPECT_EQ(code_of([&] { run(on_mesh("data=2")); },
                    "the ranks that are left cannot go on: there is no other rank"),
            ExitCode::lost_rank);
  EXPECT_THAT(run.failed, ElementsAre("settled"));
}

TEST(RunInPartsTest, ARefusalWithoutALossMarksNothing) {
  FakeRanks ranks(2);
  ScriptedRun run(ranks, {fails(Error("no such option", {.code = ExitCode::usage}))});
  EXPECT_EQ(code_of([&] { run(on_mesh("data=2")); }, "no such option"), ExitCode::usage);
  EXPECT_THAT(run.failed, IsEmpty());
}

TEST(RunInPartsTest, ALossBeforeTheEarlierRunIsRemovedLeavesThatToTheNextPart) {
  FakeRanks ranks(4);
  ScriptedRun run(ranks, {loses(ranks, {1}), ends(ExitCode::success)});
  run.replaces = false;
  EXPECT_EQ(run(on_mesh("data=4")), ExitCode::success);
  EXPECT_THAT(run.parts, ElementsAre("data=4,pipe=1,tensor=1  overwrites",
                                     "data=3,pipe=1,tensor=1 settled overwrites after rank 1"));
}

TEST(RunInPartsTest, WhereLayersMoveTheSameRanksGoOnWithTheirCosts) {
  FakeRanks ranks(4);
  std::vector<double> seen;
  const auto looks = [&seen](Recovery& recovery) {
    EXPECT_TRUE(recovery.goes_on());
    seen = recovery.stage_costs().slowness;
    return ExitCode::stopped;  // as the user asks
  };
  ScriptedRun run(ranks, {moves(4), moves(2), looks});
  EXPECT_EQ(run(on_mesh("data=2,pipe=2")), ExitCode::stopped);
  EXPECT_THAT(seen, ElementsAre(1, 2));
  EXPECT_THAT(run.parts, ElementsAre("data=2,pipe=2,tensor=1  overwrites", "data=2,pipe=2,tensor=1 settled",
                                     "data=2,pipe=2,tensor=1 settled"));
}

TEST(RunInPartsTest, AfterALossTheCostsAreMeasuredAnew) {
  FakeRanks ranks(4);
  const auto looks = [](Recovery& recovery) {
    EXPECT_THAT(recovery.stage_costs().layers, IsEmpty());
    return ExitCode::success;
  };
  ScriptedRun run(ranks, {moves(4), loses(ranks, {1, 2}), looks});
  EXPECT_EQ(run(on_mesh("data=2,pipe=2")), ExitCode::success);
  EXPECT_THAT(run.parts.back(), StartsWith("data=1,pipe=2,tensor=1 "));
}

TEST(RunInPartsTest, WholeCopiesStayAsTheyAreCut) {
  FakeRanks ranks(8);
  ScriptedRun run(ranks, {loses(ranks, {1, 2, 6, 7}), ends(ExitCode::success)});
  run(on_mesh("data=2,pipe=2,tensor=2"));
  EXPECT_THAT(run.parts.back(), StartsWith("data=1,pipe=2,tensor=2 "));
}

TEST(RunInPartsTest, TooFewRanksForWholeCopiesTakeTheModelWhole) {
  FakeRanks ranks(4);
  ScriptedRun run(ranks, {loses(ranks, {3}), loses(ranks, {0}), ends(ExitCode::success)});
  run(on_mesh("data=2,pipe=2"));
  EXPECT_THAT(run.parts,
              ElementsAre(StartsWith("data=2,pipe=2,tensor=1 "), StartsWith("data=3,pipe=1,tensor=1 "),
                          StartsWith("data=2,pipe=1,tensor=1 ")));
}

TEST(RunInPartsTest, TheLastRankTrainsAlone) {
  FakeRanks ranks(2);
  ScriptedRun run(ranks, {loses(ranks, {0}), ends(ExitCode::success)});
  EXPECT_EQ(run(on_mesh("data=1,pipe=2")), ExitCode::success);
  EXPECT_THAT(run.parts.back(), StartsWith("data=1,pipe=1,tensor=1 "));
}

TEST(RunInPartsTest, ALossBeforeThereIsAnythingToSaveIsGoneOnAfter) {
  FakeRanks ranks(4);
  ScriptedRun run(ranks, {[&](Recovery&) -> ExitCode {
                            ranks.lose({2});
                            throw lost_rank();
                          },
                          ends(ExitCode::success)});
  EXPECT_EQ(run(on_mesh("data=4")), ExitCode::success);
  EXPECT_THAT(run.parts.back(), HasSubstr("data=3,pipe=1,tensor=1 settled after rank 2"));
}

TEST(RunInPartsTest, WhereRanksMayNotBeLostTheErrorEndsTheRun) {
  FakeRanks ranks(4);
  auto config = on_mesh("data=4");
  config.on_failure = "abort";
  ScriptedRun aborted(ranks, {fails(lost_rank())});
  EXPECT_EQ(code_of([&] { aborted(config); }, "rank 1 is gone"), ExitCode::lost_rank);
  ranks.recovers = false;
  ScriptedRun killed(ranks, {fails(lost_rank())});
  EXPECT_EQ(code_of([&] { killed(on_mesh("data=4")); }, "rank 1 is gone"), ExitCode::lost_rank);
  EXPECT_THAT(ranks.done, IsEmpty());
}

TEST(RunInPartsTest, OtherErrorsEndTheRunWithTheirCode) {
  FakeRanks ranks(4);
  ScriptedRun run(ranks, {fails(data_error("is damaged", "train-00000-of-00001.h5", "stage it again"))});
  EXPECT_EQ(code_of([&] { run(on_mesh("data=4")); }, "is damaged"), ExitCode::data);
  EXPECT_THAT(ranks.done, IsEmpty());
  ScriptedRun later(ranks, {loses(ranks, {1}), fails(checkpoint_error("is damaged", "step 7", "remove it"))});
  EXPECT_EQ(code_of([&] { later(on_mesh("data=4")); }, "step 7"), ExitCode::checkpoint);
}

TEST(RunInPartsTest, ARankThatIsThereAndDoesNotComeEndsTheRunAsFailed) {
  FakeRanks ranks(4);
  ScriptedRun run(ranks, {fails(lost_rank())});
  EXPECT_EQ(code_of([&] { run(on_mesh("data=4")); }, "rank 1 is gone"), ExitCode::lost_rank);
  EXPECT_THAT(run.failed, ElementsAre("settled"));
}

TEST(SparesTest, TakeThePlacesOfLostRanksOnTheSameMesh) {
  FakeRanks ranks(5);
  ScriptedRun run(ranks, {loses(ranks, {3}), loses(ranks, {0}), ends(ExitCode::success)});
  EXPECT_EQ(run(on_mesh("data=2,pipe=2", 1)), ExitCode::success);
  EXPECT_THAT(run.parts,
              ElementsAre(StartsWith("data=2,pipe=2,tensor=1 "), StartsWith("data=2,pipe=2,tensor=1 "),
                          StartsWith("data=3,pipe=1,tensor=1 ")))
      << "the second loss finds no spare";
  EXPECT_THAT(ranks.done, ElementsAre("keep 1", "meet with state", "call up to 4", "meet with state",
                                      "call up to 4", "dismiss 0 "));
}

TEST(SparesTest, TheFirstRankSendsThemHomeWithTheRunsExitCode) {
  FakeRanks second(3, 1);
  ScriptedRun run(second, {ends(ExitCode::stopped)});
  EXPECT_EQ(run(on_mesh("data=2", 1)), ExitCode::stopped);
  EXPECT_THAT(second.done, ElementsAre("keep 1"));
  FakeRanks first(3, 0);
  ScriptedRun same(first, {ends(ExitCode::stopped)});
  same(on_mesh("data=2", 1));
  EXPECT_THAT(first.done, ElementsAre("keep 1", "dismiss 75 "));
}

TEST(SparesTest, ARankThatFailsSendsThemHomeWithItsReason) {
  FakeRanks ranks(3, 1);
  ScriptedRun run(ranks, {fails(data_error("is damaged", "a shard", "stage it again"))});
  EXPECT_EQ(code_of([&] { run(on_mesh("data=2", 1)); }, "is damaged"), ExitCode::data);
  EXPECT_THAT(ranks.done, ElementsAre("keep 1", "dismiss 3 a shard: is damaged; stage it again"));
  FakeRanks others(3, 1);
  ScriptedRun broken(others, {[](Recovery&) -> ExitCode { throw std::runtime_error("no memory"); }});
  EXPECT_THROW(broken(on_mesh("data=2", 1)), std::runtime_error);
  EXPECT_THAT(others.done, ElementsAre("keep 1", "dismiss 1 no memory"));
}

TEST(SparesTest, ADryRunKeepsNone) {
  FakeRanks ranks(3);
  auto config = on_mesh("data=3", 1);
  config.dry_run = true;
  ScriptedRun run(ranks, {ends(ExitCode::success)});
  EXPECT_EQ(run(config), ExitCode::success);
  EXPECT_THAT(run.parts, ElementsAre(StartsWith("data=3,")));
  EXPECT_THAT(ranks.done, IsEmpty());
}

TEST(SparesTest, DoNotSendEachOtherHome) {
  FakeRanks ranks(3);  // rank 0 of those that wait
  ranks.be_spare();
  ScriptedRun run(ranks, {});
  ranks.calls = {comm::Dismissal{0, ""}};
  EXPECT_EQ(run(on_mesh("data=2", 1)), ExitCode::success);
  ranks.calls = {comm::Dismissal{3, "a shard: is damaged"}};
  EXPECT_EQ(code_of([&] { run(on_mesh("data=1", 1)); }, "a shard: is damaged"), ExitCode::data);
  EXPECT_THAT(ranks.done, ElementsAre("keep 1", "wait", "keep 1", "wait"));
}

/// This rank is the one that waits beside two others.
class SpareTest : public testing::Test {
 protected:
  SpareTest() { ranks_.be_spare(); }
  FakeRanks ranks_{2};
};

TEST_F(SpareTest, EndsAsTheRunDoes) {
  ranks_.calls = {comm::Dismissal{75, ""}};
  ScriptedRun run(ranks_, {});
  EXPECT_EQ(run(on_mesh("data=2")), ExitCode::stopped);
  ranks_.calls = {comm::Dismissal{3, "a shard: is damaged"}};
  EXPECT_EQ(code_of([&] { run(on_mesh("data=2")); }, "a shard: is damaged"), ExitCode::data);
  EXPECT_THAT(run.parts, IsEmpty()) << "it never trained";
}

TEST_F(SpareTest, TrainsInThePlaceOfALostRank) {
  ranks_.calls = {std::nullopt};
  ranks_.lose({1});
  ScriptedRun run(ranks_, {ends(ExitCode::success)});
  EXPECT_EQ(run(on_mesh("data=2")), ExitCode::success);
  // Whether the others have removed an earlier run already it learns in the part.
  EXPECT_THAT(run.parts, ElementsAre("data=2,pipe=1,tensor=1  overwrites after rank 1"));
}

TEST_F(SpareTest, WaitsAgainWhereAnotherSpareWasLost) {
  ranks_.calls = {std::nullopt, comm::Dismissal{0, ""}};
  ScriptedRun run(ranks_, {});
  ranks_.lose_spares({3});
  EXPECT_EQ(run(on_mesh("data=2")), ExitCode::success);
  EXPECT_THAT(ranks_.done, ElementsAre("wait", "meet", "call up to 2", "wait"));
}

TEST_F(SpareTest, IsCalledInVainWhereAllAreThere) {
  ranks_.calls = {std::nullopt};
  ScriptedRun run(ranks_, {});
  EXPECT_EQ(code_of([&] { run(on_mesh("data=2")); }, "ranks were lost"), ExitCode::lost_rank);
  EXPECT_EQ(run.failed.size(), 1);
}

}  // namespace
}  // namespace dtrain::train
