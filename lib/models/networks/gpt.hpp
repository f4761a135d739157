#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "core/slice.hpp"
#include "models/model.hpp"
#include "models/networks/gpt_layers.hpp"

namespace dtrain::models {

/// GPT-2 with the names of Karpathy's nanoGPT (github.com/karpathy/nanoGPT, model.py), weights as [out, in],
/// biases everywhere, the output layer tied to the token embedding. Options: preset=char, gpt2, gpt2-medium,
/// gpt2-large, gpt2-xl or gpt3-175b; layers, heads, width, block and dropout override the preset's.
Registration gpt();

/// What generation goes on from: the keys and values of all tokens read so far, by layer.
struct GptCache {
  std::int64_t tokens = 0;
  std::map<std::size_t, KeysValues> of_layer;
};

/// Passes new tokens through some consecutive layers, and adds to the cache what these keep of them. An empty
/// `cache` starts a text; after that tokens come one by one.
/// Shapes: `flowing` is what the first of `layers` takes, ids int32 [n, t] or [n, t, width]. Returns
/// [n, t, width]; behind the last layer the logits of the token after the last, [n, vocabulary].
/// Throws Error (exit code 2) when the text would be longer than the model's block.
at::Tensor read_tokens(Model& gpt, Range layers, at::Tensor flowing, GptCache& cache);

/// Width of what flows between two layers.
std::int64_t width_of(const Model& gpt);

/// Tokens the model can look back on.
std::int64_t block_length(const Model& gpt);

}  // namespace dtrain::models
