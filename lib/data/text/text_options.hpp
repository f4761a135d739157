#pragma once

#include <cstdint>
#include <string>

namespace dtrain::data {

/// What `dtrain stage` is told about text. 0 and empty mean the default, which depends on the task.
struct TextOptions {
  std::string tokenizer;  ///< word, char, sentencepiece; running text: char, otherwise word.
  std::int64_t vocabulary_size =
      0;                           ///< Ids in all; documents by word: 25,000, SentencePiece: 8000, else all.
  std::int64_t min_frequency = 0;  ///< Of a token in train; pairs: 2, otherwise 1. Not for SentencePiece.
  std::int64_t max_length = 0;     ///< Ids that are kept of a text (none are cut off); a block's: 256.
  std::string languages;           ///< Of parallel text, source-target; de-en where there are both.

  /// Throws usage_error (exit code 2).
  void validate() const;
};

}  // namespace dtrain::data
