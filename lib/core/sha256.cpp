#include "core/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <string_view>

#include "core/error.hpp"

namespace dtrain {
namespace {

void check(int good) {
  require(good == 1, "OpenSSL does not compute SHA-256",
          {.subject = "libcrypto", .advice = "check the installation of OpenSSL 3"});
}

EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* context) { EVP_MD_CTX_free(as_context(context)); }) {
  check(context_ ? EVP_DigestInit_ex(as_context(context_.get()), EVP_sha256(), nullptr) : 0);
}

void Sha256::add(const void* data, std::size_t bytes) {
  check(EVP_DigestUpdate(as_context(context_.get()), data, bytes));
}

std::string Sha256::hexadecimal() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int length = 0;
  check(EVP_DigestFinal_ex(as_context(context_.get()), digest.data(), &length));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4U];
    text += kDigits[digest[i] & 15U];
  }
  return text;
}

}  // namespace dtrain
