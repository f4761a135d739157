#include "privacy/chacha20.hpp"

#include <sodium.h>

#include <algorithm>

#include "core/error.hpp"
#include "privacy/wide_chacha20.hpp"

namespace dtrain::privacy {
namespace {

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

static_assert(crypto_stream_chacha20_ietf_KEYBYTES == 32 && crypto_stream_chacha20_ietf_NONCEBYTES == 12);

}  // namespace

void chacha20(const std::array<std::byte, 32>& key, const std::array<std::byte, 12>& nonce,
              std::uint32_t block, std::span<std::byte> bytes) {
  const auto wide = has_wide_vectors() ? bytes.size() / kWideBytes * kWideBytes : 0;
  if (wide > 0) wide_chacha20(key, nonce, block, bytes.first(wide));
  const auto rest = bytes.subspan(wide);
  if (rest.empty()) return;
  // Chooses libsodium's code for this processor; without it the slowest runs.
  require(sodium_init() >= 0, "cannot start", {.subject = "libsodium", .advice = "check /dev/urandom"});
  std::ranges::fill(rest, std::byte{0});
  crypto_stream_chacha20_ietf_xor_ic(raw(rest.data()), raw(rest.data()), rest.size(), raw(nonce.data()),
                                     block + static_cast<std::uint32_t>(wide / 64), raw(key.data()));
}

}  // namespace dtrain::privacy
