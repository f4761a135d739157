#include "data/text/tokenizer.hpp"

#include "core/error.hpp"
#include "data/text/listed_tokenizer.hpp"
#include "data/text/sentencepiece_model.hpp"
#include "data/text/sentencepiece_tokenizer.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {

std::vector<std::int32_t> Tokenizer::encode_strictly(std::string_view text,
                                                     const std::string& subject) const {
  if (const std::size_t at = first_invalid_byte(text); at != std::string_view::npos)
    throw usage_error("is not UTF-8 at byte " + std::to_string(at + 1), subject, "give UTF-8 text");
  if (const auto unknown = first_unknown(text))
    throw usage_error("has '" + *unknown + "', which the vocabulary of the dataset does not have", subject,
                      "use only what the training text uses");
  return encode(text);
}

std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerInfo& info, Side side) {
  const bool target = side == Side::target;
  if (info.kind == "sentencepiece") {
    const std::string& model = target ? info.target_model : info.model;
    // A checkpoint keeps the hash of the vocabulary: so the pieces are those of its training.
    require_pieces(model, target ? info.target_vocabulary : info.vocabulary);
    return make_sentencepiece(model);
  }
  auto rule = rule_of_kind(info.kind);
  if (!rule)
    throw data_error("is of the unknown kind '" + info.kind + "'", "the dataset's tokenizer",
                     "stage the dataset again with this dtrain");
  return std::make_unique<ListedTokenizer>(std::move(*rule),
                                           target ? info.target_vocabulary : info.vocabulary);
}

}  // namespace dtrain::data
