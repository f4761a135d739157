// The JSON of an exported program: its graph and its list of weights, whose records are there and are zeros.
#include <string_view>

#include "models/exported/archive.hpp"
#include "models/exported/exported_model.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kDashes = "\n----\n";
  const auto cut = text.find(kDashes);
  if (cut == std::string_view::npos) return 0;
  const std::string file = (scratch.path() / "net.pt2").string();
  {
    models::exported::ArchiveWriter writer(file);
    writer.add("models/model.json", text.substr(0, cut));
    writer.add("data/weights/model_weights_config.json", text.substr(cut + kDashes.size()));
    writer.add("data/constants/model_constants_config.json", "{\"config\": {}}");
    const std::string zeros(4096, '\0');
    for (int i = 0; i < 16; ++i) writer.add("data/weights/weight_" + std::to_string(i), zeros);
    writer.finish();
  }
  return fuzz::expect_refusal({ExitCode::checkpoint, ExitCode::usage}, [&] {
    models::exported::registration(file).make(
        {.task = "image_classification", .sample_shape = {1, 4, 4}, .classes = 3}, {});
  });
}
