#include "train/config/secure_setting.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace dtrain::train {
namespace {

constexpr std::array<const char*, 5> kOfSecureSums = {"secure-threshold", "secure-ring", "secure-bits",
                                                      "secure-clip", "secure-noise"};
constexpr int kFewestBits = 2;
constexpr int kMostBits = 32;
constexpr int kMostThreshold = 1 << 20;

}  // namespace

void validate_secure_sums(const RunConfig& config) {
  const auto& options = config.strategy_options.federated.secure;
  require_option(options.masks == "off" || options.masks == "on" || options.masks == "unmasked",
                 fmt::format("\"{}\" is not a value it takes", printable(options.masks)),
                 "--secure-aggregation", "use one of off, on, unmasked");
  for (const std::string option : kOfSecureSums) {
    require_option(options.on() || !config.given.contains(option), "the sum of the updates is not secure",
                   "--" + option, "add --secure-aggregation on, or leave it out");
  }
  if (!options.on()) return;
  const auto given = [&](const char* option) { return config.given.contains(option); };
  require_option(
      !given("secure-threshold") || (options.threshold >= 1 && options.threshold <= kMostThreshold),
      fmt::format("{} is not a number of clients", options.threshold), "--secure-threshold",
      "use more than half of the clients of a round");
  require_option(options.ring == 32 || options.ring == 64,
                 fmt::format("a ring of {} bits does not exist", options.ring), "--secure-ring",
                 "use 32 or 64");
  require_option(!given("secure-bits") || (options.bits >= kFewestBits && options.bits <= kMostBits),
                 fmt::format("a value of {} bits cannot be summed", options.bits), "--secure-bits",
                 fmt::format("use {} to {}", kFewestBits, kMostBits));
  // Below it the values of a sum are lost in a float, and above it so are updates.
  constexpr double kLeastClip = 1e-9;
  constexpr double kMostClip = 1e9;
  require_option(options.clip >= kLeastClip && options.clip <= kMostClip,
                 fmt::format("{} is not the largest value of an update", options.clip), "--secure-clip",
                 fmt::format("use {:g} to {:g}, such as 1", kLeastClip, kMostClip));
  require_option(std::isfinite(options.noise) && options.noise >= 0,
                 fmt::format("{} is not a multiple of --secure-clip", options.noise), "--secure-noise",
                 "use 0 (none) or more, such as 1.1");
  const auto& all = config.strategy_options;
  require_option(options.noise == 0 || all.dp_clip == 0, "--dp-clip asks for noise already", "--secure-noise",
                 "leave it out, and use --dp-unit client with --dp-noise");
  require_option(all.dp_clip == 0 || all.dp_unit != "client" || !given("secure-clip"),
                 "the largest norm of an update is --dp-clip", "--secure-clip", "leave it out");
}

bool is_private(const RunConfig& config) {
  const auto& options = config.strategy_options;
  return options.dp_clip > 0 || (options.federated.secure.on() && options.federated.secure.noise > 0);
}

parallel::StrategyOptions with_noise_in_one_way(parallel::StrategyOptions options) {
  auto& secure = options.federated.secure;
  if (!secure.on() || secure.noise <= 0 || options.dp_clip > 0) return options;
  options.dp_unit = "client";
  options.dp_clip = secure.clip;
  options.dp_noise = secure.noise;
  secure.noise = 0;
  return options;
}

}  // namespace dtrain::train
