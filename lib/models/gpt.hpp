#pragma once

#include <cstdint>

#include "models/gpt_layers.hpp"
#include "models/model.hpp"

namespace dtrain::models {

/// GPT-2 with the names of Karpathy's nanoGPT (github.com/karpathy/nanoGPT, model.py), weights as [out, in],
/// biases everywhere, the output layer tied to the token embedding. Options: preset=char, gpt2, gpt2-medium,
/// gpt2-large, gpt2-xl or gpt3-175b; layers, heads, width, block and dropout override the preset's.
Registration gpt();

/// The cache that generation goes on from: keys and values of all tokens read so far, per attention layer.
using GptCache = std::vector<KeysValues>;

/// Logits of the word after the last of `ids`. Without a cache that is a forward pass over the whole text;
/// with one only the tokens given are new, and the cache grows by them.
/// Shapes: `ids` int32 [n, t]; returns [n, vocabulary]. An empty `cache` starts a text; after that t is 1.
/// Throws Error (exit code 2) when the text would be longer than the model's block.
at::Tensor next_logits(Model& gpt, const at::Tensor& ids, GptCache& cache);

/// Tokens the model can look back on.
std::int64_t block_length(const Model& gpt);

}  // namespace dtrain::models
