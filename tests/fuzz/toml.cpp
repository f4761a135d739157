// A configuration file.
#include "target.hpp"
#include "toml_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  return fuzz::expect_refusal(ExitCode::usage, [&] {
    app::parse_toml(std::string(reinterpret_cast<const char*>(data), size), "config.toml");
  });
}
