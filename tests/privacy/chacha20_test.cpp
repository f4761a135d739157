#include "privacy/chacha20.hpp"

#include <gtest/gtest.h>
#include <sodium.h>

#include <vector>

#include "privacy/wide_chacha20.hpp"

namespace dtrain::privacy {
namespace {

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

struct Stream {
  std::array<std::byte, 32> key = {};
  std::array<std::byte, 12> nonce = {};
  std::uint32_t block = 0;

  std::vector<std::byte> of_libsodium(std::size_t count) {
    std::vector<std::byte> bytes(count);
    crypto_stream_chacha20_ietf_xor_ic(raw(bytes.data()), raw(bytes.data()), count, raw(nonce.data()), block,
                                       raw(key.data()));
    return bytes;
  }
};

Stream stream_of(int number) {
  Stream stream{.block = static_cast<std::uint32_t>(number * 1000)};
  for (std::size_t i = 0; i < 32; ++i) stream.key[i] = static_cast<std::byte>(71 * i + 13 * number);
  for (std::size_t i = 0; i < 12; ++i) stream.nonce[i] = static_cast<std::byte>(37 * i + number);
  return stream;
}

TEST(ChaCha20Test, IsThatOfLibsodiumWhateverTheLength) {
  for (const std::size_t count : {0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 5000, 16384}) {
    auto stream = stream_of(static_cast<int>(count % 97));
    std::vector<std::byte> bytes(count, std::byte{0xAA});
    chacha20(stream.key, stream.nonce, stream.block, bytes);
    EXPECT_EQ(bytes, stream.of_libsodium(count)) << count;
  }
}

TEST(ChaCha20Test, WideBlocksAreThoseOfLibsodium) {
  if (!has_wide_vectors()) GTEST_SKIP() << "this processor has no vectors of 512 bits";
  for (int number = 0; number < 50; ++number) {
    auto stream = stream_of(number);
    std::vector<std::byte> bytes(3 * kWideBytes);
    wide_chacha20(stream.key, stream.nonce, stream.block, bytes);
    EXPECT_EQ(bytes, stream.of_libsodium(bytes.size())) << number;
  }
}

}  // namespace
}  // namespace dtrain::privacy
