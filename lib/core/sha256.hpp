#pragma once

#include <cstddef>
#include <memory>
#include <string>

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

}  // namespace dtrain
