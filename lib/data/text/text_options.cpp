#include "data/text/text_options.hpp"

#include "core/error.hpp"

namespace dtrain::data {

void TextOptions::validate() const {
  if (!tokenizer.empty() && tokenizer != "word" && tokenizer != "char" && tokenizer != "sentencepiece")
    throw usage_error("does not know '" + tokenizer + "'", "--tokenizer", "use word, char or sentencepiece");
  if (vocabulary_size != 0 && (vocabulary_size < 5 || vocabulary_size > 100'000'000))
    throw usage_error("is outside 5 to 100000000: four ids are padding, unknown, start and end",
                      "--vocab-size " + std::to_string(vocabulary_size), "choose another size");
  if (min_frequency < 0)
    throw usage_error("is below 1", "--min-frequency " + std::to_string(min_frequency), "use 1 or more");
  if (max_length != 0 && (max_length < 3 || max_length > 1'000'000'000))
    throw usage_error("is outside 3 to 1000000000", "--max-length " + std::to_string(max_length),
                      "give the tokens to keep of a text, start and end included");
}

}  // namespace dtrain::data
