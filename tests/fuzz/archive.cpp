// An archive or a packed file: its kind, its members and their content.
#include "data/import/archive.hpp"

#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  for (const char* name : {"in", "in.tar"}) {
    const auto file = scratch.file(name, data, size);
    fuzz::expect_refusal(ExitCode::data, [&] {
      data::glance_at_files(file, [](const data::OriginalFile&) { return true; });
      data::visit_files(file, [](data::OriginalFile&) { return true; });
    });
  }
  return 0;
}
