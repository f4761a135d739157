#include "parallel/strategy/federated/secure/secure_terms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.hpp"
#include "privacy/renyi.hpp"
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

std::string secure_privacy(const Settings& settings, std::int64_t rounds, double delta) {
  const double rho = secure_aggregation::concentration_of_sum(settings, secure_sensitivity(settings));
  // Concentrated differential privacy is the Renyi divergence of a Gaussian with this noise multiplier.
  const privacy::SampledGaussian same{.noise_multiplier = std::sqrt(0.5 / rho), .rate = 1, .steps = rounds};
  return fmt::format(
      "epsilon {:.4f} at delta {:g} for a client whose updates become zeros, after {} rounds with all "
      "clients in each "
      "(rho {:.6g} of a round, by Renyi divergence)",
      privacy::renyi_epsilon({same}, delta), delta, rounds, rho);
}

}  // namespace dtrain::parallel
