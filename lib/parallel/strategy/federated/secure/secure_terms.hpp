#pragma once

#include <cstdint>
#include <string>

#include "parallel/strategy/abilities.hpp"
#include "parallel/strategy/federated/secure/secure_options.hpp"
#include "privacy/sampled_gaussian.hpp"
#include "secure_aggregation/settings.hpp"

namespace dtrain::parallel {

/// What all ranks know of a round before it.
struct SecureFacts {
  int clients = 0;                ///< That are sampled for a round.
  std::int64_t most_samples = 1;  ///< Of any client.
  std::int64_t values = 0;        ///< Of an update, without what is summed beside it.
  double drop_rate = 0;           ///< Probability that a client hands nothing in.
};

/// Values that are summed behind those of an update, as parts of the largest value: a client's mean training
/// loss over kMostLoss, its accuracy (-1: it has none), the share of its values that were cut, and 1 where
/// the loss was. With noise they are 0: they would count for the norm.
struct SecureExtras {
  static constexpr std::int64_t kLoss = 0;
  static constexpr std::int64_t kAccuracy = 1;
  static constexpr std::int64_t kCut = 2;
  static constexpr std::int64_t kLossCut = 3;
  static constexpr std::int64_t kCount = 4;
  static constexpr double kMostLoss = 64;
};

/// The settings of all rounds of a run, but for the round and the identities, which are blank. The ring is
/// proved wide enough for `facts.clients` weighted values, and noise. A client's weight is its number of
/// samples; 1 with noise, which hides values and not weights. Throws Error (exit code 2) naming the option
/// for what cannot work.
secure_aggregation::Settings secure_settings(const SecureOptions& options, const SecureFacts& facts);

/// The same of a run, with the options of secure_options(). `values`: of an update.
secure_aggregation::Settings secure_settings(const Setting& setting, std::int64_t values);

/// What the options of a run come to. Where clients are protected (hides_clients()), `clip` is --dp-clip, and
/// `noise` is --dp-noise, or what --target-epsilon needs. Throws Error (exit code 2) where no noise will do.
SecureOptions secure_options(const Setting& setting, std::int64_t values);

/// By how much one client's integers may change their sum, as a norm: those of a vector whose norm is `clip`,
/// each rounded by at most 1/2.
double secure_sensitivity(const secure_aggregation::Settings& settings);

/// `of 10 clients at least 7, in a ring of 32 bits with values of 22 ...`: for the record of a run.
std::string in_words(const SecureOptions& options, const secure_aggregation::Settings& settings);

/// What one sum with noise counts in a ledger: a Gaussian whose Renyi divergences bound those of the sum.
/// Without noise its noise multiplier is 0.
privacy::SampledGaussian mechanism_of_sum(const secure_aggregation::Settings& settings);

}  // namespace dtrain::parallel
