// write_example FOLDER: a small checkpoint and its two exports, for readers written by others.
#include <cstdio>
#include <exception>

#include "checkpoint/export.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/support.hpp"
#include "h5/library.hpp"

int main(int argc, char** argv) {
  using namespace dtrain;
  if (argc != 2) return 2;
  try {
    const std::filesystem::path folder = argv[1];
    h5::Library library;
    const checkpoint::SmallState state;
    const auto reader =
        checkpoint::load(checkpoint::save(folder, state.info, state.tensors(), library), library);
    checkpoint::export_model(reader, folder / "model.h5", library);
    checkpoint::export_model(reader, folder / "model.safetensors", library);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
