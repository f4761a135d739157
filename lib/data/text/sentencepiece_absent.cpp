// Stands in for sentencepiece_tokenizer.cpp where the library is not installed.
#include "core/error.hpp"
#include "data/text/sentencepiece_tokenizer.hpp"

namespace dtrain::data {
namespace {

Error absent() {
  return usage_error("needs the SentencePiece library, without which this dtrain was built",
                     "--tokenizer sentencepiece",
                     "install libsentencepiece-dev and build again, or use --tokenizer word or char");
}

}  // namespace

bool has_sentencepiece() { return false; }

std::string train_sentencepiece(const std::vector<std::string_view>&, std::int64_t) { throw absent(); }

std::unique_ptr<const Tokenizer> make_sentencepiece(std::string_view) { throw absent(); }

}  // namespace dtrain::data
