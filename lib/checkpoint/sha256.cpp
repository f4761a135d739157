#include "checkpoint/sha256.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/file_io.hpp"
#include "core/error.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr std::int64_t kBurstBytes = 1 << 20;

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) fail();
  }

  void add(const void* data, std::size_t bytes) {
    if (EVP_DigestUpdate(context_.get(), data, bytes) != 1) fail();
  }

  std::string hexadecimal() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
    unsigned int length = 0;
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), &length) != 1) fail();
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < length; ++i) {
      text += kDigits[digest[i] >> 4U];
      text += kDigits[digest[i] & 15U];
    }
    return text;
  }

 private:
  [[noreturn]] static void fail() {
    throw checkpoint_error("OpenSSL does not compute SHA-256", "libcrypto",
                           "check the installation of OpenSSL 3");
  }
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string sha256_of_file(const std::filesystem::path& path) {
  const RawFile file(path, RawFile::Access::read);
  const std::int64_t bytes = file.bytes();
  std::vector<std::byte> burst(static_cast<std::size_t>(std::min(bytes, kBurstBytes)));
  Digest digest;
  for (std::int64_t at = 0; at < bytes; at += kBurstBytes) {
    const auto part = std::span(burst).first(static_cast<std::size_t>(std::min(kBurstBytes, bytes - at)));
    file.read_at(at, part);
    digest.add(part.data(), part.size());
  }
  return digest.hexadecimal();
}

std::string sha256_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hexadecimal();
}

}  // namespace dtrain::checkpoint
