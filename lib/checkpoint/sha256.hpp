#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace dtrain::checkpoint {

/// SHA-256 as 64 lower-case hexadecimal digits. Throws Error (exit code 4) when the file cannot be read.
std::string sha256_of_file(const std::filesystem::path& file);
std::string sha256_of(std::string_view bytes);

}  // namespace dtrain::checkpoint
