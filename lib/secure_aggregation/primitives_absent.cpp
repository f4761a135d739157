#include "core/error.hpp"
#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {
namespace {

[[noreturn]] void refuse() {
  throw usage_error("this dtrain was built without libsodium, whose ciphers it needs", "secure aggregation",
                    "install libsodium-dev and build again, or train without secure aggregation");
}

}  // namespace

Secret::~Secret() = default;
Digest sha256(View /*bytes*/) { refuse(); }
void hkdf(View /*input*/, View /*salt*/, View /*info*/, std::span<std::byte> /*key*/) { refuse(); }
PublicKey x25519_public(const Secret& /*own*/) { refuse(); }
std::optional<Secret> x25519(const Secret& /*own*/, const PublicKey& /*other*/) { refuse(); }
PublicKey ed25519_public(const Secret& /*seed*/) { refuse(); }
Signature ed25519_sign(const Secret& /*seed*/, View /*message*/) { refuse(); }
bool ed25519_verify(const PublicKey& /*signer*/, View /*message*/, const Signature& /*signature*/) {
  refuse();
}
Bytes seal(const Secret& /*key*/, const Nonce& /*nonce*/, View /*plain*/, View /*associated*/) { refuse(); }
std::optional<Bytes> open(const Secret& /*key*/, const Nonce& /*nonce*/, View /*sealed*/,
                          View /*associated*/) {
  refuse();
}
void chacha20(const Secret& /*key*/, const Nonce& /*nonce*/, std::uint32_t /*block*/,
              std::span<std::byte> /*bytes*/) {
  refuse();
}
bool equal(const Block<32>& /*one*/, const Block<32>& /*other*/) { refuse(); }

}  // namespace dtrain::secure_aggregation
