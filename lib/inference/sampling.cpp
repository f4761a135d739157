#include "inference/sampling.hpp"

#include <fmt/format.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "kernels/philox.hpp"

namespace dtrain::inference {
namespace {

/// A number in [0, 1), another one for each position of a text.
double chance(const SamplingConfig& config, std::uint32_t position) {
  const auto words = kernels::philox_block(
      {config.seed, kernels::Purpose::sampling, position, 0, kernels::stream_of("generate")}, 0);
  return (static_cast<double>(words[0]) + static_cast<double>(words[1]) * 0x1.0p-32) * 0x1.0p-32;
}

}  // namespace

void SamplingConfig::validate() const {
  const auto usage = [](const char* option, const char* advice) {
    return ErrorContext{.subject = option, .advice = advice, .code = ExitCode::usage};
  };
  require(std::isfinite(temperature) && temperature >= 0.0,
          fmt::format("{} is not a number of at least 0", temperature),
          usage("--temperature", "use 0 for the likeliest text, about 1 for variety"));
  require(top_k >= 0, fmt::format("{} is below 0", top_k), usage("--top-k", "use 1 or more, or 0 for all"));
  require(top_p > 0.0 && top_p <= 1.0, fmt::format("{} is outside (0, 1]", top_p),
          usage("--top-p", "use a share such as 0.9, or 1 for all"));
}

std::int32_t sample_token(const at::Tensor& logits, const SamplingConfig& config, std::uint32_t position) {
  if (config.temperature == 0.0) return static_cast<std::int32_t>(logits.argmax().item<std::int64_t>());
  const auto scaled = logits.to(at::kDouble) / config.temperature;
  const auto [sorted, tokens] = at::softmax(scaled, 0).sort(/*dim=*/0, /*descending=*/true);
  const double* const probabilities = sorted.const_data_ptr<double>();
  const std::int64_t most =
      config.top_k > 0 ? std::min<std::int64_t>(config.top_k, sorted.numel()) : sorted.numel();
  std::int64_t kept = 0;
  double sum = 0.0;
  while (kept < most && (kept == 0 || sum < config.top_p)) sum += probabilities[kept++];
  double left = chance(config, position) * sum;
  std::int64_t choice = 0;
  while (choice + 1 < kept && left >= probabilities[choice]) left -= probabilities[choice++];
  return static_cast<std::int32_t>(tokens.const_data_ptr<std::int64_t>()[choice]);
}

}  // namespace dtrain::inference
