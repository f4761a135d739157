#include "train/recovery/recovery_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RunConfig on_two_ranks(const std::string& strategy) {
  RunConfig config;
  config.strategy = strategy;
  resolve_recipe(config);
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
