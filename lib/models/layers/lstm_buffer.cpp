#include "models/layers/lstm_buffer.hpp"

#include <ATen/ops/cat.h>

#include <array>

namespace dtrain::models {

at::Tensor lstm_buffer(const LstmWeights& weights) {
  const std::array parts = {weights.input.detach(), weights.hidden.detach(), weights.input_bias.detach(),
                            weights.hidden_bias.detach()};
  std::int64_t count = 0;
  bool joined = true;
  for (const at::Tensor& part : parts) {
    joined = joined && part.is_contiguous() && part.is_alias_of(parts[0]) &&
             part.storage_offset() == parts[0].storage_offset() + count;
    count += part.numel();
  }
  if (joined) return parts[0].as_strided({count}, {1}, parts[0].storage_offset());
  return at::cat({parts[0].flatten(), parts[1].flatten(), parts[2].flatten(), parts[3].flatten()});
}

}  // namespace dtrain::models
