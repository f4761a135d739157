// Differential privacy of clients in secure sums: rank 0 is the server, the others simulate clients.
#include "parallel/strategy/federated/secure/secure_privacy.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/strategy/federated/secure/secure_terms.hpp"
#include "parallel/strategy/federated/secure_job.hpp"
#include "privacy/renyi.hpp"
#include "secure_aggregation/fixed_point.hpp"

namespace dtrain::parallel {
namespace {

StrategyOptions private_options(double noise, double target = 0) {
  return {.dp_clip = kLargest, .dp_noise = noise, .target_epsilon = target, .dp_unit = "client"};
}

FederatedOptions wide_ring() {
  FederatedOptions options;
  options.secure.ring = 64;
  return options;
}

std::unique_ptr<FedAvg> private_strategy(SecureJob& job, double noise, double target = 0) {
  return job.strategy("on", wide_ring(), private_options(noise, target));
}

TEST(SecurePrivacyTest, NoiseMovesTheMeanAsMuchAsItSaysAndCountsAsAGaussianOfThatNoise) {
  SecureJob job;
  const auto strategy = private_strategy(job, 0.5);
  const auto before = job.weights();
  const int rounds = 12;
  double squares = 0;
  for (int number = 1; number <= rounds; ++number) {
    const auto weights = job.weights();
    at::Tensor mean = at::zeros_like(weights);
    for (const auto& client : kPullers) {
      const auto update = kPull * (client.target - weights);
      mean += update * std::min(1.0, kLargest / update.norm().item<double>()) / kClients;
    }
    const auto outcome = job.train(*strategy, job.round(number));
    EXPECT_EQ(outcome.total.samples, 0);  // weights and losses are not in the sum
    squares += (job.weights() - weights - mean).square().sum().item<double>();
  }
  const double count = static_cast<double>(before.numel()) * rounds;
  // All seven add what is enough with four of them.
  const double expected = 0.5 * kLargest / kClients * std::sqrt(7.0 / 4);
  EXPECT_NEAR(std::sqrt(squares / count), expected, 5 * expected / std::sqrt(2 * count));
  const auto& privacy = *strategy->privacy();
  EXPECT_EQ(privacy.releases(), rounds);
  EXPECT_EQ(privacy.terms().unit, "client");
  EXPECT_EQ(privacy.terms().rate, 1) << "the server knows who takes part";
  EXPECT_EQ(privacy.terms().clip, kLargest);
  EXPECT_NEAR(privacy.terms().noise, 0.5, 1e-6);
  EXPECT_FALSE(privacy.drawn_clients(1).has_value());
  const privacy::SampledGaussian counted{
      .noise_multiplier = privacy.terms().noise, .rate = 1, .steps = rounds};
  EXPECT_DOUBLE_EQ(privacy.epsilon(), privacy::renyi_epsilon({counted}, 1e-5));
}

TEST(SecurePrivacyTest, TheLedgerIsInItsFileBeforeTheServerTellsAnyRankOfTheSum) {
  SecureJob job;
  const auto strategy = private_strategy(job, 1);
  for (int number = 1; number <= 3; ++number) {
    const int before = job.broadcasts();
    job.train(*strategy, job.round(number, {{number, 1}}));
    ASSERT_EQ(std::ssize(job.kept), job.rank() == 0 ? number : 0);
    if (job.rank() > 0) continue;
    EXPECT_EQ(job.kept.back().broadcasts, before);
    EXPECT_GT(job.broadcasts(), before);
    EXPECT_EQ(job.kept.back().lines, strategy->privacy()->ledger());
  }
}

TEST(SecurePrivacyTest, ARoundThatFailsReleasesNothing) {
  SecureJob job;
  const auto strategy = private_strategy(job, 1);
  job.train(*strategy, job.round(1));
  const auto failed = job.train(*strategy, job.round(2, {{0, 2}, {2, 0}, {4, 1}, {5, 2}}));
  EXPECT_EQ(failed.round->handed_in, 0);
  EXPECT_EQ(strategy->privacy()->releases(), 1);
  EXPECT_EQ(std::ssize(job.kept), job.rank() == 0 ? 1 : 0);
}

// The server knows both sums.
TEST(SecurePrivacyTest, ARoundThatIsMadeAgainAfterItsSumWasKnownCountsTwice) {
  SecureJob job;
  const auto strategy = private_strategy(job, 1);
  job.train(*strategy, job.round(1));
  job.train(*strategy, job.round(2));
  auto file = strategy->privacy()->ledger();
  strategy->roll_back(2);
  EXPECT_EQ(strategy->privacy()->releases(), 1);
  strategy->privacy()->take_ledger(file, "its file");  // as the next part of a run does
  job.train(*strategy, job.round(2));
  EXPECT_EQ(strategy->privacy()->releases(), 3);
}

TEST(SecurePrivacyTest, TheLedgerIsPartOfTheState) {
  SecureJob job;
  const auto strategy = private_strategy(job, 1);
  job.train(*strategy, job.round(1));
  job.train(*strategy, job.round(2));
  SecureJob again;
  const auto resumed = private_strategy(again, 1);
  const auto from = strategy->state().tensors();
  const auto to = resumed->state().tensors();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    auto value = to[i].value;
    if (from[i].group == "optimizer/privacy") value.copy_(from[i].value);
  }
  resumed->adopt_optimizer();
  EXPECT_EQ(resumed->privacy()->releases(), 2);
  EXPECT_EQ(resumed->privacy()->epsilon(), strategy->privacy()->epsilon());
}

TEST(SecurePrivacyTest, TheNoiseOfATargetKeepsToItToTheEndOfTheRunAndNotBeyond) {
  for (const double target : {0.5, 8.0}) {
    SecureJob job;
    const auto strategy = private_strategy(job, -1, target);
    for (int number = 1; number <= 10; ++number) {
      EXPECT_FALSE(strategy->privacy()->is_spent()) << number;
      job.train(*strategy, job.round(number));
    }
    EXPECT_LE(strategy->privacy()->epsilon(), target);
    EXPECT_GT(strategy->privacy()->epsilon(), 0.99 * target);
    EXPECT_TRUE(strategy->privacy()->is_spent());
  }
}

/// Updates that are as long as they may be, longer, or whose elements are far apart. [n]
std::map<std::string, at::Tensor> hostile_updates(std::int64_t n, double clip, double most,
                                                  at::ScalarType type) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const double even = clip / std::sqrt(static_cast<double>(n));
  const at::Tensor places = at::arange(n, wide);
  const at::Tensor signs = 1 - 2 * at::remainder(places, 2);
  std::map<std::string, at::Tensor> all = {
      {"as long as the clip", at::full({n}, even, wide)},
      {"a little longer", at::full({n}, even * (1 + 1e-7), wide)},
      {"much longer", at::full({n}, 1e30, wide) * signs},
      {"one large", at::full({n}, even * 1e-3, wide)},
      {"ever smaller", at::pow(0.9, places) * (3 * clip) * signs},
      {"the least of floats", at::full({n}, 1.4e-45, wide)},
      {"halves of units", signs * ((std::floor(even * most / clip) + 0.5) * clip / most)},
      {"a slope", places * (clip / 7) * signs}};
  all["one large"].narrow(0, 0, 1).fill_(1e35);
  if (type == at::kDouble) all["the largest of doubles"] = at::full({n}, 1e300, wide);
  for (auto& [name, update] : all) update = update.to(type).contiguous();
  return all;
}

// In exact arithmetic: what the server's sum may change by.
TEST(SecurePrivacyTest, NoClientsIntegersAreLongerThanTheSensitivityWhateverItHandsIn) {
  constexpr std::int64_t kValues = 2000;
  for (const double clip : {1e-30, 1e-3, 1.0, 1e5}) {
    for (const int bits : {8, 16, 24}) {
      const SecureOptions options{.masks = "on", .ring = 64, .bits = bits, .clip = clip, .noise = 0.01};
      const auto settings = secure_settings(options, {.clients = kClients, .values = kValues});
      const auto most = static_cast<double>(settings.format.largest_integer());
      for (const auto type : {at::kFloat, at::kDouble}) {
        for (auto& [name, update] : hostile_updates(kValues, clip, most, type)) {
          auto clipped = update.clone();
          clip_to(clipped, options.largest_norm());
          const auto narrow = clipped.to(at::kFloat);
          const std::vector<float> values(narrow.const_data_ptr<float>(),
                                          narrow.const_data_ptr<float>() + narrow.numel());
          const auto encoded = secure_aggregation::encode(settings.format, values, 1, "a test");
          long double exact = 0;
          long double whole = 0;
          for (std::size_t i = 0; i < values.size(); ++i) {
            const auto word =
                static_cast<long double>(secure_aggregation::element(settings.format, encoded.words, i));
            whole += word * word;
            exact += static_cast<long double>(values[i]) * static_cast<long double>(values[i]);
          }
          EXPECT_LE(std::sqrt(exact), static_cast<long double>(clip)) << name << ' ' << clip;
          EXPECT_LE(std::sqrt(whole), static_cast<long double>(secure_sensitivity(settings)))
              << name << ' ' << clip << ' ' << bits;
          EXPECT_EQ(encoded.saturated, 0U) << name;
        }
      }
    }
  }
}

TEST(SecurePrivacyTest, SaysWhatItCannotDo) {
  const auto why = [](const std::function<void(StrategyOptions&)>& change) {
    Setting setting;
    setting.mesh.data = 2;
    setting.options = private_options(1);
    setting.options.federated.secure.masks = "on";
    change(setting.options);
    return FedAvg::can(setting).runs.why_not;
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_EQ(why([](auto& o) { o.dp_unit = "record"; }), "") << "masks add to what clients do themselves";
  EXPECT_NE(why([](auto& o) { o.federated.secure.masks = "unmasked"; }).find("without masks"),
            std::string::npos);
  EXPECT_NE(why([](auto& o) { o.dp_noise = 0; }).find("without noise"), std::string::npos);
  EXPECT_NE(why([](auto& o) { o.dp_adaptive_clip = 0.5; }).find("--dp-adaptive-clip"), std::string::npos);
  EXPECT_NE(why([](auto& o) { o.dp_accountant = "pld"; }).find("use --dp-accountant rdp"), std::string::npos);
  EXPECT_NE(why([](auto& o) { o.noise_source = "seeded"; }).find("--noise-source"), std::string::npos);
  SecureJob job;
  auto tiny = private_options(1);
  tiny.dp_clip = 1e-38;
  EXPECT_THROW(job.strategy("on", wide_ring(), tiny), Error);
}

}  // namespace
}  // namespace dtrain::parallel
