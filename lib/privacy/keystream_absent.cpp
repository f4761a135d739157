#include "core/error.hpp"
#include "privacy/keystream.hpp"

namespace dtrain::privacy {
namespace {

[[noreturn]] void refuse() {
  throw usage_error("this dtrain was built without libsodium, which gives secret random numbers",
                    "--noise-source secure",
                    "install libsodium-dev and build again, or in a test use seeded");
}

}  // namespace

Keystream::Keystream() { refuse(); }
Keystream::Keystream(const std::array<std::byte, 32>& /*key*/) { refuse(); }
Keystream::~Keystream() = default;
void Keystream::fill(std::span<std::byte> /*bytes*/) { refuse(); }

}  // namespace dtrain::privacy
