// manifest.json of a checkpoint, and what is computed from it.
#include "checkpoint/manifest.hpp"

#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  return fuzz::expect_refusal(ExitCode::checkpoint, [&] {
    const auto manifest =
        checkpoint::parse_manifest(std::string(reinterpret_cast<const char*>(data), size), "manifest.json");
    for (const auto& tensor : manifest.tensors) tensor.bytes();
    checkpoint::parse_manifest(checkpoint::manifest_text(manifest),
                               "manifest.json");  // what was read can be written
  });
}
