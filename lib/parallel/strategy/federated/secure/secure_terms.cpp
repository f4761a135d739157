#include "parallel/strategy/federated/secure/secure_terms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.hpp"
#include "parallel/strategy/federated/secure/secure_privacy.hpp"
#include "privacy/accountant.hpp"
#include "secure_aggregation/noise_account.hpp"

namespace dtrain::parallel {
namespace {

using secure_aggregation::Settings;

int two_thirds(int clients) { return (2 * clients + 2) / 3; }

int threshold_of(const SecureOptions& options, int clients) {
  return options.threshold > 0 ? options.threshold : std::max(two_thirds(clients), clients / 2 + 1);
}

void check_threshold(const SecureOptions& options, const SecureFacts& facts) {
  const int clients = facts.clients;
  require_option(
      clients >= 3,
      fmt::format("a sum of {} clients hides nothing: each could subtract its own update", clients),
      "--secure-aggregation", "sample at least 3 clients for a round: --clients-per-round");
  const int threshold = threshold_of(options, clients);
  const auto subject = fmt::format("--secure-threshold {}", threshold);
  require_option(threshold <= clients,
                 fmt::format("a round has {} clients, fewer than the threshold", clients), subject,
                 fmt::format("use {} to {}", clients / 2 + 1, clients));
  require_option(
      2 * threshold > clients,
      fmt::format("the threshold is not above half of the {} clients of a round: a server could get "
                  "two different sums",
                  clients),
      subject, fmt::format("use {} to {}", clients / 2 + 1, clients));
  require_option(
      (1 - facts.drop_rate) * clients >= threshold - 1e-9,
      fmt::format("of {} clients {:.3g} hand in on the average with --drop-rate {:g}, fewer than the "
                  "threshold",
                  clients, (1 - facts.drop_rate) * clients, facts.drop_rate),
      subject,
      fmt::format("use a threshold of {} or more that is below that, or a smaller --drop-rate",
                  clients / 2 + 1));
}

bool fits(const Settings& settings) {
  try {
    settings.validate();
    return true;
  } catch (const Error&) {
    return false;
  }
}

SecureFacts secure_facts(const Setting& setting, std::int64_t values) {
  SecureFacts facts{.clients = static_cast<int>(clients_of_round(setting)),
                    .values = values,
                    .drop_rate = setting.options.federated.drop_rate};
  for (const auto& client : setting.clients)
    facts.most_samples = std::max(facts.most_samples, client.samples);
  return facts;
}

/// The deviation, in multiples of the clip, with which the sums of all rounds keep to the target: that of
/// Gaussians, or a little more where the sum of the clients' noise differs from a Gaussian.
double noise_for_target(SecureOptions options, const SecureFacts& facts, const StrategyOptions& wanted,
                        std::int64_t rounds) {
  constexpr double kLittle = 1e-6;
  const double needed = privacy::noise_for(
      wanted.target_epsilon, wanted.dp_delta,
      {.sampling = privacy::Sampling::poisson, .rate = 1, .steps = rounds}, privacy::Accounting::renyi);
  options.noise = needed;
  for (;;) {
    const double has = mechanism_of_sum(secure_settings(options, facts)).noise_multiplier;
    if (has >= needed) return options.noise;
    options.noise *= std::max(needed / has, 1 + kLittle);
  }
}

void set_bits(Settings& settings, int bits, double noise) {
  settings.format.value_bits = bits;
  settings.noise_deviation = noise > 0 ? noise * secure_sensitivity(settings) : 0;
}

}  // namespace

double secure_sensitivity(const Settings& settings) {
  return static_cast<double>(settings.format.largest_integer()) +
         std::sqrt(static_cast<double>(settings.length)) / 2;
}

Settings secure_settings(const SecureOptions& options, const SecureFacts& facts) {
  check_threshold(options, facts);
  require_option(options.ring == 32 || options.ring == 64,
                 fmt::format("a ring of {} bits does not exist", options.ring), "--secure-ring",
                 "use 32 or 64");
  Settings settings;
  settings.identities.resize(static_cast<std::size_t>(facts.clients));
  settings.length = static_cast<std::size_t>(facts.values + SecureExtras::kCount);
  settings.minimum_survivors = threshold_of(options, facts.clients);
  const int weight_bits =
      options.noise > 0 ? 0
                        : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(facts.most_samples)));
  settings.format = {.ring_bits = options.ring, .weight_bits = weight_bits, .largest = options.clip};
  const int most = options.bits > 0 ? options.bits : SecureOptions::kMostUsualBits;
  const int least = options.bits > 0 ? options.bits : SecureOptions::kFewestUsualBits;
  for (int bits = most; bits >= least; --bits) {
    set_bits(settings, bits, options.noise);
    if (fits(settings)) return settings;
  }
  require_option(false,
                 fmt::format("values of {} bits, weights of {} (up to {} samples), {} clients{} do not fit "
                             "its {} bits",
                             least, weight_bits, facts.most_samples, facts.clients,
                             options.noise > 0 ? " and noise" : "", options.ring),
                 fmt::format("--secure-ring {}", options.ring),
                 options.ring == 32 ? "use --secure-ring 64, or smaller --secure-bits"
                                    : "use smaller --secure-bits, or less noise");
  return settings;
}

Settings secure_settings(const Setting& setting, std::int64_t values) {
  return secure_settings(secure_options(setting, values), secure_facts(setting, values));
}

SecureOptions secure_options(const Setting& setting, std::int64_t values) {
  constexpr double kSmallestClip = 1e-30;  // below it the last bit of a float would count
  const auto& wanted = setting.options;
  auto options = wanted.federated.secure;
  if (!hides_clients(setting)) return options;
  require_option(wanted.dp_clip >= kSmallestClip, "is as small as what updates are rounded to",
                 fmt::format("--dp-clip or --secure-clip {:g}", wanted.dp_clip),
                 "use a larger one, such as 1");
  options.clip = wanted.dp_clip;
  options.noise = wanted.dp_noise >= 0
                      ? wanted.dp_noise
                      : noise_for_target(options, secure_facts(setting, values), wanted, setting.total_steps);
  return options;
}

std::string in_words(const SecureOptions& options, const Settings& settings) {
  const auto& format = settings.format;
  auto words = fmt::format(
      "sums of at least {} of {} clients on rank 0, {}; ring of {} bits, values of {} up to {:g}, weights of "
      "{}",
      settings.minimum_survivors, settings.clients(),
      options.masked()
          ? fmt::format(
                "each masked with {} others",
                secure_aggregation::plan_graph(settings.clients(), settings.minimum_survivors).neighbours)
          : "without masks: the server sees every update",
      format.ring_bits, format.value_bits, format.largest, format.weight_bits);
  if (settings.noise_deviation > 0) {
    words += fmt::format("; clients add discrete Gaussian noise, in the sum of deviation {:g} or more",
                         options.noise * options.clip);
  }
  return words;
}

privacy::SampledGaussian mechanism_of_sum(const Settings& settings) {
  const double rho = secure_aggregation::concentration_of_sum(settings, secure_sensitivity(settings));
  return {.sampling = privacy::Sampling::poisson, .noise_multiplier = std::sqrt(0.5 / rho), .rate = 1};
}

}  // namespace dtrain::parallel
