#include "secure_aggregation/settings.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "core/error.hpp"
#include "secure_aggregation/byte_io.hpp"
#include "secure_aggregation/discrete_gaussian.hpp"

namespace dtrain::secure_aggregation {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::keys:
      return "keys";
    case Phase::shares:
      return "shares";
    case Phase::masked_inputs:
      return "masked inputs";
    case Phase::survivors:
      return "survivors";
    case Phase::unmasking:
      return "unmasking";
    case Phase::done:
      break;
  }
  return "the end";
}

std::uint64_t Settings::noise_variance_of_a_client() const {
  return static_cast<std::uint64_t>(std::ceil(noise_deviation * noise_deviation / minimum_survivors));
}

void Settings::validate() const {
  constexpr const char* kWhat = "secure aggregation";
  if (clients() < 3) {
    throw usage_error(
        fmt::format("a round of {} clients hides nothing: each could subtract its own values", clients()),
        kWhat, "use at least 3 clients");
  }
  if (clients() > (1 << 20))
    throw usage_error("a round has more than 2^20 clients", kWhat, "sample fewer clients");
  if (minimum_survivors > clients()) {
    throw usage_error(fmt::format("a threshold of {} survivors is above the {} clients of a round",
                                  minimum_survivors, clients()),
                      kWhat, "ask for at most as many survivors as there are clients");
  }
  if (2 * minimum_survivors <= clients()) {
    throw usage_error(
        fmt::format("a threshold of {} survivors is not more than half of {} clients: a server could get "
                    "two different sums",
                    minimum_survivors, clients()),
        kWhat, fmt::format("ask for at least {} survivors", clients() / 2 + 1));
  }
  if (length < 1) throw usage_error("a client has no values", kWhat, "give each client at least one value");
  if (length > (std::size_t{1} << 34)) {
    throw usage_error("a client has more than 2^34 values", kWhat,
                      "add parts of them in rounds of their own");
  }
  if (!(noise_deviation >= 0) ||
      noise_deviation * noise_deviation > static_cast<double>(kMostVariance) * minimum_survivors) {
    throw usage_error("the deviation of a client's noise is not in [0, 2^20] integers", kWhat,
                      "give values fewer bits, or use less noise");
  }
  if (noise_deviation > 0 && format.weight_bits != 0) {
    throw usage_error("noise hides values but not the sum of the weights", kWhat,
                      "use equal weights (0 bits) together with noise");
  }
  // Each draw is beyond 8 deviations with a probability below 3e-14.
  const double deviation = std::sqrt(static_cast<double>(noise_variance_of_a_client()));
  format.validate(clients(), 8 * deviation * clients());
  plan_graph(clients(), minimum_survivors);
}

Digest Settings::digest() const {
  Writer writer;
  writer.text("dtrain secure aggregation 1");
  writer.integer(round);
  writer.integer(static_cast<std::uint64_t>(length));
  for (const int value : {format.ring_bits, format.value_bits, format.weight_bits, minimum_survivors}) {
    writer.integer(static_cast<std::uint32_t>(value));
  }
  writer.integer(std::bit_cast<std::uint64_t>(format.largest));
  writer.integer(std::bit_cast<std::uint64_t>(noise_deviation));
  writer.integer(static_cast<std::uint32_t>(clients()));
  for (const auto& identity : identities) writer.bytes(identity);
  return sha256(writer.written());
}

void fail(std::uint64_t round, Phase phase, const std::string& problem, const std::string& advice) {
  throw Error(problem, {.subject = fmt::format("round {}, {}", round, name_of(phase)), .advice = advice});
}

}  // namespace dtrain::secure_aggregation
