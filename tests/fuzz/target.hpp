#pragma once

#include <stdlib.h>  // mkdtemp

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <string>

#include "core/error.hpp"

/// What libFuzzer and driver.cpp call with each input. A reader may refuse an input only by an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace dtrain::fuzz {

/// A folder for the files of one process; removed at its end.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dtrain-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Writes the input into a file of this name.
  std::filesystem::path file(const std::string& name, const std::uint8_t* data, std::size_t size) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    return path;
  }

 private:
  std::filesystem::path path_;
};

/// Runs `read`, which may end with an Error of a promised exit code. Anything else is a finding: it ends the
/// process.
template <typename Read>
int expect_refusal(std::initializer_list<ExitCode> promised, Read read) {
  try {
    read();
  } catch (const Error& error) {
    const bool kept = std::find(promised.begin(), promised.end(), error.code()) != promised.end();
    if (kept && !error.subject().empty() && !error.advice().empty()) return 0;
    std::cerr << "fuzz: exit code " << static_cast<int>(error.code()) << ": " << error.what() << std::endl;
    std::abort();
  }  // any other exception ends the process by itself
  return 0;
}
template <typename Read>
int expect_refusal(ExitCode promised, Read read) {
  return expect_refusal({promised}, read);
}

}  // namespace dtrain::fuzz
