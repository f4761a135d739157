// results.h5 of a run, as `dtrain report` reads it.
#include "h5/library.hpp"
#include "record/run_reader.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  static h5::Library library;
  scratch.file("results.h5", data, size);
  return fuzz::expect_refusal(
      ExitCode::data, [&] { record::read_run(library, scratch.path().string(), record::Detail::steps); });
}
