#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/shards/dataset.hpp"

namespace dtrain::data {

inline constexpr std::int32_t kPaddingId = 0;
inline constexpr std::int32_t kUnknownId = 1;
inline constexpr std::int32_t kStartId = 2;
inline constexpr std::int32_t kEndId = 3;
inline constexpr std::int32_t kSpecialIds = 4;

/// The tokens of the ids 0 to 3.
inline constexpr std::string_view kSpecialTokens[kSpecialIds] = {"<pad>", "<unk>", "<start>", "<end>"};

/// Text to ids and back, as it was decided when the dataset was staged.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids lie in [0, size()).
  virtual std::int32_t size() const = 0;

  /// The token of an id in [0, size()).
  virtual std::string token(std::int32_t id) const = 0;

  /// The ids of `text`, without start and end; what is not in the vocabulary is kUnknownId. `text` must be
  /// UTF-8 (require_utf8). Throws data_error for an unknown token when there are no special ids.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The text of `ids`; special ids are left out, unknown ones show as <unk>. Throws Error for an id outside
  /// [0, size()).
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// The first token of `text` that is not in the vocabulary.
  virtual std::optional<std::string> first_unknown(std::string_view text) const = 0;

  /// Whether ids 0 to 3 are padding, unknown, start and end. They are, except in running text by character
  /// whose vocabulary has every character of all splits: none of the four could occur there.
  virtual bool has_special_ids() const { return true; }

  /// encode for text that somebody typed: throws usage_error naming `subject`, such as `--prompt`, and what
  /// is wrong, when `text` is not UTF-8 or has a token that is not in the vocabulary.
  std::vector<std::int32_t> encode_strictly(std::string_view text, const std::string& subject) const;
};

/// Which language of a pair; `source` where there is only one.
enum class Side { source, target };

/// The tokeniser that dataset.json describes. Kinds: word (and synthetic), char, sentencepiece. Throws
/// data_error for another kind, a vocabulary that has a token twice, or a damaged model, and usage_error when
/// this dtrain was built without SentencePiece.
std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerInfo& info, Side side = Side::source);

}  // namespace dtrain::data
