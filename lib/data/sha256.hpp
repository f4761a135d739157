#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace dtrain::data {

/// SHA-256 of a file as lower-case hexadecimal, read a megabyte at a time. Throws data_error.
std::string sha256_of_file(const std::filesystem::path& file);

/// SHA-256 of bytes in memory.
std::string sha256_of(std::span<const std::byte> bytes);

}  // namespace dtrain::data
