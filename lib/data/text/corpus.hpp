#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// How the texts of one language become ids.
struct CorpusOptions {
  std::string kind = "word";         ///< word, char or sentencepiece.
  std::int64_t vocabulary_size = 0;  ///< With the special ids; 0: no limit (word, char).
  std::int64_t min_frequency = 1;    ///< A token that train has less often is unknown (word, char).
  std::int64_t max_length = 0;       ///< Ids of a text, frame included, the rest is cut off; 0: no limit.
  enum class Frame { none, start_and_end };
  Frame frame = Frame::none;  ///< What is put around each text.
  enum class SpecialIds { always, where_needed };
  /// where_needed: a char vocabulary without the four when it has every character of all splits.
  SpecialIds special_ids = SpecialIds::always;
};

/// The texts of a split, one after another.
struct EncodedTexts {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> offsets = {0};  ///< Text i is tokens [offsets[i], offsets[i + 1]).
};

struct EncodedCorpus {
  std::vector<std::string> vocabulary;  ///< Token of each id.
  std::string model;                    ///< Serialised, of SentencePiece.
  std::map<std::string, EncodedTexts> splits;
  std::int64_t longest = 0;  ///< Ids of the longest text of all splits.
};

/// Learns a vocabulary from the texts `learned_from` of split train (their indices) and encodes all splits.
/// A word vocabulary is ordered by frequency, then by bytes; a char vocabulary by character; when there are
/// more tokens than `vocabulary_size` the most frequent are kept. Texts must be UTF-8. Throws usage_error for
/// a kind there is not and for a size that cannot be (SentencePiece).
EncodedCorpus encode_corpus(const std::map<std::string, std::vector<std::string_view>>& splits,
                            std::span<const std::int64_t> learned_from, const CorpusOptions& options);

}  // namespace dtrain::data
