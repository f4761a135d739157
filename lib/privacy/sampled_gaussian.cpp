#include "privacy/sampled_gaussian.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/error.hpp"

namespace dtrain::privacy {

Sampling parse_sampling(const std::string& text) {
  if (text == "poisson") return Sampling::poisson;
  if (text == "once") return Sampling::once_an_epoch;
  throw usage_error(fmt::format("'{}' is no way to draw records", text), "--dp-sampler",
                    "use poisson, or once (each record in one random step of an epoch)");
}

std::string name_of(Sampling sampling) { return sampling == Sampling::poisson ? "poisson" : "once"; }

std::int64_t SampledGaussian::steps_per_epoch() const { return std::llround(1 / rate); }

std::int64_t SampledGaussian::epochs() const {
  const auto each = steps_per_epoch();
  return (steps + each - 1) / each;
}

void SampledGaussian::validate() const {
  require(std::isfinite(noise_multiplier) && noise_multiplier >= 0,
          fmt::format("{} is no multiple of the clip norm", noise_multiplier),
          {.subject = "--dp-noise", .advice = "give a number above 0, such as 1.1", .code = ExitCode::usage});
  require(rate > 0 && rate <= 1, fmt::format("{} is no share of the records", rate),
          {.subject = "the sampling rate",
           .advice = "give records per step over all records, above 0 and at most 1",
           .code = ExitCode::usage});
  require(
      steps >= 0 && steps <= kMostSteps, fmt::format("{} is no number of steps", steps),
      {.subject = "the steps", .advice = fmt::format("give 0 to {}", kMostSteps), .code = ExitCode::usage});
}

void require_delta(double delta) {
  require(delta > 0 && delta < 1, fmt::format("{} is not between 0 and 1", delta),
          {.subject = "--dp-delta",
           .advice = "give a probability well below 1 / records, such as 1e-5",
           .code = ExitCode::usage});
}

}  // namespace dtrain::privacy
