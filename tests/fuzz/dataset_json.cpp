// dataset.json, and the tokeniser that it describes.
#include "data/shards/dataset.hpp"
#include "data/text/tokenizer.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  scratch.file("dataset.json", data, size);
  return fuzz::expect_refusal(ExitCode::data, [&] {
    const auto info = data::read_dataset_info(scratch.path());
    if (info.tokenizer) data::make_tokenizer(*info.tokenizer);
  });
}
