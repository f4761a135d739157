#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer.hpp"

namespace dtrain::data {

/// Whether this dtrain was built with the library.
bool has_sentencepiece();

/// Trains a unigram model of `vocabulary_size` pieces (with the four special ids) on the texts and returns it
/// serialised. A pure function of its arguments. Throws usage_error for a size that the texts cannot fill or
/// that is too small for their characters, and when dtrain was built without SentencePiece.
/// Source: Kudo and Richardson, SentencePiece, EMNLP 2018.
std::string train_sentencepiece(const std::vector<std::string_view>& texts, std::int64_t vocabulary_size);

/// The tokeniser of a serialised model. Throws data_error when it is damaged, usage_error without the
/// library.
std::unique_ptr<const Tokenizer> make_sentencepiece(std::string_view model);

}  // namespace dtrain::data
