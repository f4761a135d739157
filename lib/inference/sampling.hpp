#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtrain::inference {

/// How the next token is chosen from its logits.
struct SamplingConfig {
  double temperature = 1.0;  ///< What logits are divided by; 0: always the likeliest token.
  int top_k = 0;             ///< Only the k likeliest tokens; 0: all.
  double top_p = 1.0;        ///< Only the fewest likeliest tokens whose probabilities add up to this.
  std::uint64_t seed = 1;

  /// Throws Error (exit code 2), naming the option, at the first value that cannot work.
  void validate() const;
};

/// The token at `position` of a text: a pure function of its arguments. `logits`: [vocabulary], on the CPU.
/// Source of top_p: Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020.
std::int32_t sample_token(const at::Tensor& logits, const SamplingConfig& config, std::uint32_t position);

}  // namespace dtrain::inference
