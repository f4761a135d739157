#include "train/recovery/recovery_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {

/// Beside ddp one that can do nothing when a rank is lost.
const std::vector<StrategyEntry>& strategies() {
  static const std::vector<StrategyEntry> kStrategies = {
      synchronous(),
      {.name = "fragile",
       .rule = "a test's",
       .can =
           [](const Setting& /*setting*/) {
             return Abilities{.rolls_back = {"each copy stands elsewhere"},
                              .copies_parts = {"a part has no owner"},
                              .spares = {"no copy has another's state"}};
           },
       .make = nullptr}};
  return kStrategies;
}

}  // namespace dtrain::parallel

namespace dtrain::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RunConfig on_two_ranks(const std::string& strategy) {
  RunConfig config;
  config.strategy = strategy;
  config.resolve(2);
  return config;
}

/// What the Error says that `check` throws, which has the exit code 2.
template <typename Check>
std::string refusal(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "nothing is refused";
}

TEST(RecoveryOptionsTest, AStrategyThatCannotRecoverSaysWhy) {
  auto config = on_two_ranks("fragile");
  EXPECT_NO_THROW(config.validate()) << "nothing is asked of it";
  config.on_failure = "recover";
  EXPECT_EQ(
      refusal([&] { config.validate(); }),
      "--on-failure recover: --strategy fragile cannot: each copy stands elsewhere; use --on-failure auto "
      "or abort");
  config.on_failure = "abort";
  config.replicate = "3";
  EXPECT_EQ(refusal([&] { config.validate(); }),
            "--replicate 3: --strategy fragile cannot: a part has no owner; leave --replicate out");
}

TEST(RecoveryOptionsTest, AStrategyThatRecoversIsLeftAlone) {
  auto config = on_two_ranks("ddp");
  config.on_failure = "recover";
  config.replicate = "3";
  EXPECT_NO_THROW(config.validate());
}

TEST(RecoveryOptionsTest, CopiesServeWhereAStepCannotBeRolledBack) {
  auto config = on_two_ranks("ddp");
  config.on_failure = "recover";
  const parallel::Answer no{"the state is in the memory of a device"};
  EXPECT_NO_THROW(check_recovery(config, {.rolls_back = no}));
  EXPECT_NO_THROW(check_recovery(config, {.copies_parts = no}));
  EXPECT_THAT(refusal([&] { check_recovery(config, {.rolls_back = no, .copies_parts = no}); }),
              HasSubstr("the state is in the memory of a device"));
}

TEST(RecoveryOptionsTest, RecoveryIsRefusedWhereMpiEndsTheJob) {
  auto config = on_two_ranks("ddp");
  EXPECT_NO_THROW(check_on_failure(config, false));
  config.on_failure = "recover";
  EXPECT_NO_THROW(check_on_failure(config, true));
  EXPECT_THAT(refusal([&] { check_on_failure(config, false); }),
              AllOf(HasSubstr("--on-failure recover: "), HasSubstr("--with-ft ulfm")));
}

TEST(RecoveryOptionsTest, SparesAreRefusedWhereTheyWouldWaitInVain) {
  auto config = on_two_ranks("ddp");
  config.spares = 2;
  EXPECT_NO_THROW(check_spares(config, true, 3));
  EXPECT_THAT(refusal([&] { check_spares(config, true, 2); }),
              AllOf(HasSubstr("--spares 2: of 2 ranks none"), HasSubstr("start at least 3")));
  EXPECT_THAT(refusal([&] { check_spares(config, false, 3); }),
              AllOf(HasSubstr("would wait in vain"), HasSubstr("--with-ft ulfm")));
  config.on_failure = "abort";
  EXPECT_THAT(refusal([&] { check_spares(config, true, 3); }), HasSubstr("leave --on-failure abort out"));
  config.on_failure = "auto";
  config.strategy = "fragile";
  EXPECT_EQ(refusal([&] { check_spares(config, true, 3); }),
            "--spares 2: --strategy fragile cannot: no copy has another's state; leave --spares out");
}

TEST(RecoveryOptionsTest, TheLogSaysWhatALossWouldMean) {
  auto config = on_two_ranks("ddp");
  EXPECT_THAT(recovery_in_words(config, false), HasSubstr("off: start with mpirun --with-ft ulfm"));
  EXPECT_THAT(recovery_in_words(config, true), HasSubstr("the others go on without it"));
  config.spares = 1;
  EXPECT_THAT(recovery_in_words(config, true), HasSubstr("1 spare rank takes the places"));
  config.on_failure = "abort";
  EXPECT_THAT(recovery_in_words(config, true), HasSubstr("off: --on-failure abort"));
}

}  // namespace
}  // namespace dtrain::train
