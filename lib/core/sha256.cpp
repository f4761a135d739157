#include "core/sha256.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <system_error>
#include <vector>

#include "core/regular_file.hpp"

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

std::string sha256_of(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hexadecimal();
}

std::string sha256_of_file(const std::filesystem::path& file, ExitCode code,
                           const std::function<void()>& after_piece) {
  require_regular_file(file, code);
  std::ifstream stream(file, std::ios::binary);
  require(bool(stream), "cannot be opened",
          {.subject = file.string(), .advice = "check the path and its permissions", .code = code});
  Sha256 digest;
  constexpr std::uintmax_t kMostAtOnce = std::uintmax_t{1} << 20;
  std::error_code ignored;  // a file without a size is read in the largest pieces
  const auto size = std::filesystem::file_size(file, ignored);
  std::vector<char> buffer(std::clamp<std::uintmax_t>(size, 1, kMostAtOnce));
  while (stream) {
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    digest.add(buffer.data(), static_cast<std::size_t>(stream.gcount()));
    if (after_piece) after_piece();
  }
  require(!stream.bad(), "cannot be read to its end",
          {.subject = file.string(), .advice = "check the disk", .code = code});
  return digest.hexadecimal();
}

}  // namespace dtrain
