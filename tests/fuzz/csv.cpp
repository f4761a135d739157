// A table of text: cells, header, columns and target.
#include "data/formats/tables.hpp"
#include "data/import/originals.hpp"
#include "data/import/stage.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  data::StageOptions options;
  options.name = "set";
  options.from = scratch.file("table.csv", data, size);
  return fuzz::expect_refusal(ExitCode::data, [&] {
    try {
      data::read_tables(options);
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;  // such as: all columns are the target
    }
  });
}
