// Secure sums with fedavg: rank 0 is the server, the others simulate clients.
#include "parallel/strategy/federated/secure/secure_rounds.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/strategy/federated/secure/secure_terms.hpp"
#include "parallel/strategy/federated/secure_job.hpp"

namespace dtrain::parallel {
namespace {

namespace sums = secure_aggregation;

sums::Settings settings_of(const at::Tensor& weights, int threshold = 4) {
  SecureOptions options{.masks = "on", .threshold = threshold, .clip = kLargest};
  return secure_settings(options, {.clients = kClients, .most_samples = 7, .values = weights.numel()});
}

/// What a client hands in, as floats.
std::vector<float> update_of(const at::Tensor& weights, int client) {
  const auto moved = weights - kPull * (weights - kPullers[static_cast<std::size_t>(client)].target);
  const auto update = (moved - weights).to(at::kFloat).contiguous();
  return {update.const_data_ptr<float>(), update.const_data_ptr<float>() + update.numel()};
}

sums::Bytes words_of(const at::Tensor& weights, int client) {
  return sums::encode(settings_of(weights).format, update_of(weights, client),
                      static_cast<std::uint64_t>(kPullers[static_cast<std::size_t>(client)].samples),
                      "a test")
      .words;
}

/// The weights after a round of plain sums of integers.
at::Tensor summed(const at::Tensor& weights, const std::vector<int>& clients) {
  const auto format = settings_of(weights).format;
  std::vector<std::int64_t> sum(static_cast<std::size_t>(weights.numel()), 0);
  std::int64_t samples = 0;
  for (const int client : clients) {
    const auto words = words_of(weights, client);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += sums::element(format, words, i);
    samples += kPullers[static_cast<std::size_t>(client)].samples;
  }
  auto next = weights.clone();
  for (std::size_t i = 0; i < sum.size(); ++i)
    next[static_cast<std::int64_t>(i)] += sums::number(format, sum[i], samples);
  return next;
}

TEST(SecureRoundsTest, TheMeanIsThatOfThePlainIntegersBitForBitWithDropoutsInEachPhase) {
  const std::vector<Losses> cases = {{},
                                     {{2, 0}},
                                     {{5, 1}},
                                     {{0, 2}},
                                     {{6, 3}},
                                     {{1, 4}},
                                     {{0, 0}, {3, 1}, {4, 2}},
                                     {{1, 2}, {2, 2}, {5, 2}},
                                     {{2, 1}, {3, 3}, {4, 4}}};
  SecureJob masked;
  SecureJob unmasked;
  const auto one = masked.strategy("on");
  const auto other = unmasked.strategy("unmasked");
  std::int64_t number = 0;
  for (const auto& losses : cases) {
    std::vector<int> in_sum;
    std::int64_t samples = 0;
    for (int client = 0; client < kClients; ++client) {
      const auto lost = losses.find(client);
      if (lost != losses.end() && lost->second <= 2) continue;
      in_sum.push_back(client);
      samples += kPullers[static_cast<std::size_t>(client)].samples;
    }
    const auto expected = summed(masked.weights(), in_sum);
    ++number;
    const auto outcome = masked.train(*one, masked.round(number, losses));
    const auto plain = unmasked.train(*other, unmasked.round(number, losses));
    EXPECT_EQ(outcome.round->handed_in, std::ssize(in_sum)) << number;
    EXPECT_EQ(outcome.round->samples, samples);
    EXPECT_EQ(outcome.round->sampled, kClients);
    EXPECT_TRUE(masked.weights().equal(expected)) << number << ' ' << distance(masked.weights(), expected);
    EXPECT_TRUE(unmasked.weights().equal(expected)) << number;
    EXPECT_EQ(outcome.total.loss, plain.total.loss);
    EXPECT_EQ(outcome.total.samples, static_cast<double>(samples));
    EXPECT_NO_THROW(one->compare_copies(number));
  }
}

TEST(SecureRoundsTest, WithTooFewClientsTheRoundFailsNamingItselfAndTheNextOneGoesOn) {
  for (const std::string masks : {"on", "unmasked"}) {
    for (const int answers : {0, 1, 2, 3, 4}) {
      if (masks == "unmasked" && answers > 2) continue;  // they are in the sum, and nothing follows
      SecureJob job;
      FederatedOptions options;
      options.secure.threshold = 5;
      const auto strategy = job.strategy(masks, options);
      job.train(*strategy, job.round(1));
      const auto before = job.weights();
      const auto outcome = job.train(*strategy, job.round(2, {{0, answers}, {2, answers}, {5, answers}}));
      EXPECT_EQ(outcome.round->handed_in, 0);
      EXPECT_TRUE(job.weights().equal(before));
      if (job.rank() == 0) {
        const auto& said = outcome.round->problem;
        EXPECT_NE(said.find("round 2, "), std::string::npos) << said;
        EXPECT_NE(said.find("4 of 7 clients have answered, and a sum needs 5"), std::string::npos) << said;
      }
      const auto next = job.train(*strategy, job.round(3));
      EXPECT_EQ(next.round->handed_in, kClients);
      EXPECT_TRUE(next.round->problem.empty());
      EXPECT_FALSE(job.weights().equal(before));
    }
  }
}

/// Whether some of the client's numbers have come to this rank as they are, in any form that is in use.
bool has_seen(const std::string& seen, const at::Tensor& weights, int client) {
  const auto floats = update_of(weights, client);
  const std::vector<double> doubles(floats.begin(), floats.end());
  const auto words = words_of(weights, client);
  const auto format = settings_of(weights).format;
  std::vector<std::int64_t> wide;
  for (std::size_t i = 0; i < floats.size(); ++i) wide.push_back(sums::element(format, words, i));
  const auto is_in = [&](const void* data) {
    return seen.find(std::string(static_cast<const char*>(data), 12)) != std::string::npos;
  };
  return is_in(floats.data()) || is_in(doubles.data()) || is_in(words.data()) || is_in(wide.data());
}

TEST(SecureRoundsTest, NoClientsVectorComesToTheServer) {
  for (const std::string masks : {"on", "unmasked"}) {
    SecureJob job;
    const auto strategy = job.strategy(masks);
    const auto weights = job.weights();
    job.train(*strategy, job.round(1, {{1, 1}, {3, 4}}));
    if (job.rank() > 0) continue;
    EXPECT_GT(job.seen().size(), 5U * static_cast<std::size_t>(weights.numel()) * 4);
    for (int client = 0; client < kClients; ++client) {
      // Without masks the same look finds each: it can see.
      EXPECT_EQ(has_seen(job.seen(), weights, client), masks == "unmasked" && client != 1) << masks << client;
    }
  }
}

TEST(SecureRoundsTest, TheServerComputesForNoClientAndKeepsNoTotalsOfTheirs) {
  SecureJob job;
  const auto strategy = job.strategy("on");
  bool computed = false;
  job.engine.curvature = 1e-3;  // the losses are below 64
  job.engine.target_of = [&](const MicroBatch& batch) {
    computed = true;
    return kPullers.at(static_cast<std::size_t>(batch.ids.at(0))).target;
  };
  const auto outcome = job.train(*strategy, job.round(1));
  EXPECT_EQ(computed, job.rank() > 0);
  EXPECT_EQ(outcome.own.samples, 0);
  EXPECT_EQ(outcome.own.loss, 0);
  EXPECT_GT(outcome.total.loss, 0);
}

TEST(SecureRoundsTest, ValuesBeyondTheClipAreCutAndToldOf) {
  SecureJob job;
  FederatedOptions options;
  const auto strategy = job.strategy("on", options);
  job.engine.curvature = 1e4;  // one step goes far
  const auto outcome = job.train(*strategy, job.round(1));
  EXPECT_EQ(outcome.round->news.empty(), job.rank() > 0);
  EXPECT_EQ(outcome.total.weight, 0);  // losses above 64 are cut as well, and not shown then
  EXPECT_GT(outcome.total.samples, 0);
  EXPECT_TRUE(job.train(*strategy, job.round(2)).round->news.empty());
  const auto is_told = [&](const std::string& word) {
    return std::ranges::any_of(job.told,
                               [&](const auto& line) { return line.find(word) != std::string::npos; });
  };
  EXPECT_EQ(is_told("beyond --secure-clip 4"), job.rank() == 0);
  EXPECT_EQ(is_told("sums of at least 4 of 7 clients on rank 0"), job.rank() == 0);
}

TEST(SecureRoundsTest, ClientsThatAreLateAreDropouts) {
  for (const std::string masks : {"on", "unmasked"}) {
    SecureJob job;
    const auto strategy = job.strategy(masks, {.round_deadline = 1e-9});
    const auto before = job.weights();
    const auto outcome = job.train(*strategy, job.round(1));
    EXPECT_EQ(outcome.round->handed_in, 0);
    EXPECT_TRUE(job.weights().equal(before));
    if (job.rank() == 0) {
      EXPECT_NE(outcome.round->problem.find("masked inputs: 0 of 7"), std::string::npos)
          << outcome.round->problem;
    }
  }
}

TEST(SecureRoundsTest, AnUpdateThatIsNotFiniteEndsTheRunNamingTheRound) {
  SecureJob job;
  const auto strategy = job.strategy("on");
  if (job.rank() == 1) job.engine.spoils = std::numeric_limits<double>::quiet_NaN();
  try {
    job.train(*strategy, job.round(3));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("round 3: an update is not finite"), std::string::npos)
        << error.what();
  }
}

TEST(SecureRoundsTest, RefusesSettingsThatHideNothingOrDoNotFit) {
  const auto refusal = [](const SecureOptions& options, const SecureFacts& facts) -> std::string {
    try {
      secure_settings(options, facts);
      return {};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
  };
  const SecureFacts facts{.clients = 10, .most_samples = 600, .values = 1000};
  const auto has = [](const std::string& said, const std::string& word) {
    return said.find(word) != std::string::npos;
  };
  EXPECT_EQ(refusal({.masks = "on"}, facts), "");
  EXPECT_TRUE(has(refusal({.masks = "on"}, {.clients = 2, .values = 10}), "hides nothing"));
  EXPECT_TRUE(has(refusal({.masks = "on", .threshold = 11}, facts), "--secure-threshold 11"));
  EXPECT_TRUE(has(refusal({.masks = "on", .threshold = 5}, facts), "not above half"));
  EXPECT_TRUE(has(refusal({.masks = "on", .bits = 24}, facts), "--secure-ring 64"));
  EXPECT_EQ(refusal({.masks = "on", .ring = 64, .bits = 24}, facts), "");
  EXPECT_TRUE(has(refusal({.masks = "on"}, {.clients = 1000, .most_samples = 100'000, .values = 10}),
                  "do not fit its 32 bits"));
  auto dropping = facts;
  dropping.drop_rate = 0.4;
  EXPECT_TRUE(has(refusal({.masks = "on", .threshold = 8}, dropping), "--drop-rate 0.4"));
  EXPECT_EQ(refusal({.masks = "on", .threshold = 6}, dropping), "");
  // 8 bits and 1000 deviations for each of 10 clients.
  EXPECT_TRUE(has(refusal({.masks = "on", .noise = 1e6}, facts), "noise"));
}

TEST(SecureRoundsTest, TakesAsManyBitsAsTheRingHasRoomFor) {
  const auto bits = [](int ring, int clients, std::int64_t samples) {
    return secure_settings({.masks = "on", .ring = ring},
                           {.clients = clients, .most_samples = samples, .values = 9})
        .format.value_bits;
  };
  EXPECT_EQ(bits(32, 100, 600), 32 - 10 - 7);
  EXPECT_EQ(bits(32, 4, 3), 24);  // what a float has
  EXPECT_EQ(bits(64, 100, 600), 24);
}

}  // namespace
}  // namespace dtrain::parallel
