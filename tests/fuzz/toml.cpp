// A configuration file.
#include "options/toml_file.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  return fuzz::expect_refusal(ExitCode::usage, [&] {
    app::parse_toml(std::string(reinterpret_cast<const char*>(data), size), "config.toml");
  });
}
