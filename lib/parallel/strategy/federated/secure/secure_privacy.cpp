#include "parallel/strategy/federated/secure/secure_privacy.hpp"

#include <fmt/format.h>

#include "parallel/strategy/federated/secure/secure_terms.hpp"

namespace dtrain::parallel {

bool hides_clients(const Setting& setting) {
  const auto& options = setting.options;
  return options.federated.secure.on() && options.dp_clip > 0 && options.dp_unit == "client";
}

Answer SecurePrivacy::can(const Setting& setting) {
  const auto& options = setting.options;
  if (!options.federated.secure.masked())
    return {"clients add noise in parts that protect nothing without masks: use --secure-aggregation on"};
  if (options.dp_noise == 0)
    return {
        "without noise a clipped secure sum protects no client: raise --dp-noise, or leave --dp-clip out"};
  if (options.dp_adaptive_clip > 0)
    return {"a secure sum has no count of the updates within the clip: leave --dp-adaptive-clip out"};
  if (options.dp_accountant != "rdp")
    return {"of sums of discrete Gaussians the Renyi divergences are bounded: use --dp-accountant rdp"};
  if (options.noise_source != "secure")
    return {"the clients of a secure sum draw their noise from libsodium: leave --noise-source out"};
  return {};
}

SecurePrivacy::SecurePrivacy(const StrategyParts& parts, std::int64_t values)
    : SecurePrivacy(parts, secure_settings(parts.setting, values)) {}

SecurePrivacy::SecurePrivacy(const StrategyParts& parts, const secure_aggregation::Settings& settings)
    : PrivateAccount(parts, mechanism_of_sum(settings), "client"),
      options_(parts.setting.options),
      settings_(settings) {}

void SecurePrivacy::commit(const StepPlan& /*plan*/, bool released) {
  if (released) add_step();
}

std::string SecurePrivacy::in_words() const {
  return fmt::format(
      "each client, whose updates become zeros; clip of updates {:g}, noise {:.4f} x clip or more, of which "
      "each of at least {} of {} clients adds its part before its masks (discrete Gaussian, libsodium), "
      "rounds counted as if all clients took part, accountant rdp",
      options_.dp_clip, mechanism().noise_multiplier, settings_.minimum_survivors, settings_.clients());
}

}  // namespace dtrain::parallel
