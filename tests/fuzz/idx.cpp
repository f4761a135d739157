// An IDX file, plain or in gzip.
#include "data/formats/idx.hpp"

#include "columns.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  return fuzz::expect_refusal(ExitCode::data, [&] {
    const auto file = scratch.file("train-images-idx3-ubyte", data, size);
    data::is_idx(file);
    fuzz::read_some(*data::read_idx(file));
  });
}
