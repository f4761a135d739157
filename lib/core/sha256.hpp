#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace dtrain {

/// One SHA-256 digest in the making, by OpenSSL. Source: FIPS 180-4. Throws Error when OpenSSL fails.
class Sha256 {
 public:
  Sha256();
  void add(const void* data, std::size_t bytes);
  std::string hexadecimal();  ///< 64 lower-case digits; ends the digest.

 private:
  std::unique_ptr<void, void (*)(void*)> context_;  // EVP_MD_CTX
};

/// Of bytes in memory.
std::string sha256_of(std::string_view bytes);

/// Of a file, read a megabyte at a time. `after_piece` (empty: nothing) is called after each. Throws Error
/// with the exit code `code` when it cannot be read.
std::string sha256_of_file(const std::filesystem::path& file, ExitCode code,
                           const std::function<void()>& after_piece = {});

}  // namespace dtrain
