// A .safetensors file: its header, and each tensor that it lists.
#include "checkpoint/safetensors.hpp"

#include <vector>

#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  return fuzz::expect_refusal(ExitCode::checkpoint, [&] {
    const auto weights = checkpoint::open_safetensors(scratch.file("w.safetensors", data, size));
    for (const auto& entry : weights->entries()) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(entry.bytes()));
      weights->read(entry, bytes);
    }
  });
}
