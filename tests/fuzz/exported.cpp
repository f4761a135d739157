// A file of torch.export.save: the archive, its graph and weights, up to a model that is ready to train.
#include "models/exported/exported_model.hpp"

#include "models/exported/golden.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  const auto file = scratch.file("net.pt2", data, size).string();
  return fuzz::expect_refusal({ExitCode::checkpoint, ExitCode::usage}, [&] {
    models::exported::check_golden(file);
    const auto model = models::exported::registration(file).make(
        {.task = "image_classification", .sample_shape = {1, 4, 4}, .classes = 3}, {});
    model->initialise(1);
  });
}
