#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::data::testing {

/// A folder of this test's own, gone with it.
class TemporaryFolder {
 public:
  std::filesystem::path path() const { return folder_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }

 private:
  test::ScratchFolder folder_;
};

inline std::string read_bytes(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_bytes(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

/// An IDX file of unsigned bytes, uncompressed: element i of the values is value(i).
template <typename Value>
std::string idx_bytes(const std::vector<int>& shape, Value value) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  std::size_t count = 1;
  for (const int extent : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift & 255);
    count *= static_cast<std::size_t>(extent);
  }
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(value(i));
  return bytes;
}

/// The error that `action` ends with; fails the test when it ends without.
template <typename Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {"none", {}};
}

/// That it is of exit code 3, says `words`, and has a remedy.
inline void expect_data_error(const Error& error, const std::string& words) {
  EXPECT_EQ(error.code(), ExitCode::data);
  EXPECT_THAT(error.what(), ::testing::HasSubstr(words));
  EXPECT_FALSE(error.advice().empty());
}

}  // namespace dtrain::data::testing
