#include "privacy/ledger.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "privacy/client_ledgers.hpp"

namespace dtrain::privacy {
namespace {

constexpr SampledGaussian kOne{.sampling = Sampling::poisson, .noise_multiplier = 1.1, .rate = 0.004};
constexpr SampledGaussian kOther{.sampling = Sampling::once_an_epoch, .noise_multiplier = 0.9, .rate = 0.1};

Ledger ledger_of(int ones, int others) {
  Ledger ledger;
  for (int i = 0; i < ones; ++i) ledger.add_step(kOne);
  for (int i = 0; i < others; ++i) ledger.add_step(kOther);
  return ledger;
}

TEST(LedgerTest, CountsStepsByMechanism) {
  const auto ledger = ledger_of(3, 2);
  ASSERT_EQ(ledger.mechanisms().size(), 2U);
  EXPECT_EQ(ledger.mechanisms()[0].steps, 3);
  EXPECT_EQ(ledger.mechanisms()[1].steps, 2);
  EXPECT_EQ(ledger.steps(), 5);
}

TEST(LedgerTest, IsTheSameAfterACheckpointAndAFile) {
  const auto ledger = ledger_of(3, 2);
  for (const auto& again : {Ledger::of_numbers(ledger.numbers()), Ledger::of_lines(ledger.lines(), "file")}) {
    EXPECT_EQ(again.lines(), ledger.lines());
    EXPECT_EQ(again.mechanisms()[0].noise_multiplier, kOne.noise_multiplier);
  }
}

TEST(LedgerTest, StepsMadeAgainCountTwice) {
  auto resumed = ledger_of(10, 0);                     // of a checkpoint
  resumed.take_larger(ledger_of(14, 0));               // four steps later the run was killed
  for (int i = 0; i < 4; ++i) resumed.add_step(kOne);  // they are made again
  EXPECT_EQ(resumed.steps(), 18);
}

TEST(LedgerTest, StepsMadeAgainWithTheSameRecordsCountAsStepsOfAll) {
  auto resumed = ledger_of(0, 10);
  resumed.take_larger(ledger_of(0, 14));
  ASSERT_EQ(resumed.mechanisms().size(), 2U);
  EXPECT_EQ(resumed.mechanisms()[0].steps, 10) << "those that the checkpoint has";
  EXPECT_EQ(resumed.mechanisms()[1].rate, 1);
  EXPECT_EQ(resumed.mechanisms()[1].steps, 2) << "four steps of ten may touch two epochs";
  auto again = ledger_of(0, 10);
  again.take_larger(resumed);
  EXPECT_EQ(again.mechanisms()[1].steps, 2) << "what was counted already is kept";
}

TEST(LedgerTest, DamagedOnesAreRefused) {
  const auto text = ledger_of(3, 2).lines();
  EXPECT_THROW(Ledger::of_lines("", "file"), Error);
  EXPECT_THROW(Ledger::of_lines(text.substr(0, text.size() - 4), "file"), Error) << "cut off";
  EXPECT_THROW(Ledger::of_lines("dtrain.privacy 1\n0 1 2 3\nend\n", "file"), Error) << "a rate of 2";
  EXPECT_THROW(Ledger::of_lines("dtrain.privacy 1\nnan x\nend\n", "file"), Error);
  auto numbers = ledger_of(3, 2).numbers();
  numbers[3] = 1.5;
  EXPECT_THROW(Ledger::of_numbers(numbers), Error);
  EXPECT_THROW(Ledger::of_numbers(std::vector<double>(3)), Error);
}

TEST(LedgerTest, HasRoomForSoManyMechanisms) {
  Ledger ledger;
  auto mechanism = kOne;
  for (std::size_t i = 0; i < Ledger::kMostEntries; ++i, mechanism.noise_multiplier += 0.1)
    ledger.add_step(mechanism);
  EXPECT_THROW(ledger.add_step(mechanism), Error);
  EXPECT_EQ(Ledger::of_numbers(ledger.numbers()).lines(), ledger.lines());
}

TEST(LedgerTest, SaysWhatItProtectsAndIsNotTakenForAnother) {
  const auto ledger = ledger_of(3, 0);
  EXPECT_EQ(Ledger::of_lines(ledger.lines("client"), "file", "client").steps(), 3);
  EXPECT_THROW(Ledger::of_lines(ledger.lines("client"), "file"), Error);
  EXPECT_THROW(Ledger::of_lines(ledger.lines(), "file", "client"), Error);
}

ClientLedgers of_clients(std::int64_t first, std::int64_t third) {
  ClientLedgers all(3);
  all.add_steps(0, kOne, first);
  all.add_steps(2, kOther, third);
  return all;
}

TEST(ClientLedgersTest, CountEachClientAndAreTheSameAfterACheckpointAndAFile) {
  const auto all = of_clients(5, 20);
  std::vector<double> numbers(3 * ClientLedgers::kNumbers);
  all.write_numbers(numbers);
  for (const auto& again :
       {ClientLedgers::of_numbers(numbers), ClientLedgers::of_lines(all.lines(), "file", 3)}) {
    EXPECT_EQ(again.lines(), all.lines());
    EXPECT_EQ(again.of(0).steps(), 5);
    EXPECT_EQ(again.of(1).steps(), 0);
    EXPECT_EQ(again.of(2).steps(), 20);
  }
}

TEST(ClientLedgersTest, TakeTheLargerOfEachClient) {
  auto all = of_clients(5, 0);
  all.take_larger(of_clients(2, 10));
  EXPECT_EQ(all.of(0).steps(), 5);
  auto more = of_clients(0, 0);
  more.add_steps(1, kOne, 4);
  all.take_larger(more);
  EXPECT_EQ(all.of(1).steps(), 4);
}

TEST(ClientLedgersTest, DamagedOnesAreRefused) {
  const auto text = of_clients(5, 20).lines();
  EXPECT_THROW(ClientLedgers::of_lines("", "file", 3), Error);
  EXPECT_THROW(ClientLedgers::of_lines(text, "file", 2), Error) << "of another client";
  EXPECT_THROW(ClientLedgers::of_lines(text.substr(0, text.size() - 8), "file", 3), Error) << "cut off";
  EXPECT_THROW(ClientLedgers::of_lines(ledger_of(1, 0).lines(), "file", 3), Error) << "of one ledger";
  auto full = of_clients(1, 0);
  auto mechanism = kOne;
  for (std::size_t i = 1; i < ClientLedgers::kMostEntries; ++i)
    full.add_steps(0, mechanism = {.noise_multiplier = 2.0 + static_cast<double>(i), .rate = 0.5}, 1);
  EXPECT_THROW(full.add_steps(0, {.noise_multiplier = 1, .rate = 0.5}, 1), Error);
}

}  // namespace
}  // namespace dtrain::privacy
