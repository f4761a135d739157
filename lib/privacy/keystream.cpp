#include "privacy/keystream.hpp"

#include <sodium.h>

#include <cstring>

#include "core/error.hpp"
#include "privacy/chacha20.hpp"

namespace dtrain::privacy {
namespace {

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
  std::array<std::byte, 12> nonce = {};
  std::memcpy(nonce.data() + 4, &calls_, sizeof(calls_));
  ++calls_;
  chacha20(key_, nonce, 0, bytes);
}

}  // namespace dtrain::privacy
