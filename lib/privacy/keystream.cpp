#include "privacy/keystream.hpp"

#include <sodium.h>

#include <cstring>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

void start_sodium() {
  require(sodium_init() >= 0, "gives no random numbers",
          {.subject = "libsodium", .advice = "check /dev/urandom"});
}

}  // namespace

Keystream::Keystream() {
  start_sodium();
  randombytes_buf(key_.data(), key_.size());
}

Keystream::Keystream(const std::array<std::byte, 32>& key) : key_(key) { start_sodium(); }

Keystream::~Keystream() { sodium_memzero(key_.data(), key_.size()); }

void Keystream::fill(std::span<std::byte> bytes) {
  std::array<unsigned char, crypto_stream_chacha20_ietf_NONCEBYTES> nonce = {};
  std::memcpy(nonce.data() + 4, &calls_, sizeof(calls_));
  ++calls_;
  static_assert(crypto_stream_chacha20_ietf_KEYBYTES == 32);
  crypto_stream_chacha20_ietf(raw(bytes.data()), bytes.size(), nonce.data(), raw(key_.data()));
}

}  // namespace dtrain::privacy
