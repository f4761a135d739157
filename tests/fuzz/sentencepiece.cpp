// A SentencePiece model: what passes our check, the library loads and uses.
#include "data/text/sentencepiece_model.hpp"

#include "data/text/sentencepiece_tokenizer.hpp"
#include "data/text/tokenizer.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  return fuzz::expect_refusal(ExitCode::data, [&] {
    const std::string model(reinterpret_cast<const char*>(data), size);
    data::check_sentencepiece_model(model);
    if (data::has_sentencepiece()) data::make_sentencepiece(model)->encode("a b ab \xC3\xA4 aaaa");
  });
}
