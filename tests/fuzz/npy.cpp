// A .npy file, as inputs and as targets.
#include "data/formats/npy.hpp"

#include "columns.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  return fuzz::expect_refusal(ExitCode::data, [&] {
    const auto file = scratch.file("x.npy", data, size);
    fuzz::read_some(*data::open_npy(file, {data::ElementType::uint8, data::ElementType::float32}));
    fuzz::read_some(*data::open_npy(file, {data::ElementType::int64}));
  });
}
