#include "privacy/wide_chacha20.hpp"

#include <cstring>

#include "core/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dtrain::privacy {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kWords = 16;  // of a block, and blocks side by side

#define DTRAIN_WIDE __attribute__((target("avx512f"))) inline

/// One word of each of 16 blocks.
using Lanes [[gnu::vector_size(64)]] = std::uint32_t;

DTRAIN_WIDE void quarter_round(Lanes& a, Lanes& b, Lanes& c, Lanes& d) {
  a += b;
  d ^= a;
  d = d << 16 | d >> 16;
  c += d;
  b ^= c;
  b = b << 12 | b >> 20;
  a += b;
  d ^= a;
  d = d << 8 | d >> 24;
  c += d;
  b ^= c;
  b = b << 7 | b >> 25;
}

/// One step of four that make columns of rows: of each two rows `apart` from one another, the lanes with that
/// bit of one and those without it of the other change places.
template <std::uint32_t apart>
DTRAIN_WIDE void exchange(Lanes (&x)[kWords]) {
  alignas(64) std::uint32_t from_first[kWords];
  alignas(64) std::uint32_t from_second[kWords];
  for (std::uint32_t lane = 0; lane < kWords; ++lane) {
    const bool upper = (lane & apart) != 0;
    from_first[lane] = upper ? kWords + lane - apart : lane;
    from_second[lane] = upper ? kWords + lane : lane + apart;
  }
  const __m512i first = _mm512_load_si512(from_first);
  const __m512i second = _mm512_load_si512(from_second);
  for (std::size_t row = 0; row < kWords; ++row) {
    if ((row & apart) != 0) continue;
    const auto one = reinterpret_cast<__m512i>(x[row]);
    const auto other = reinterpret_cast<__m512i>(x[row + apart]);
    x[row] = reinterpret_cast<Lanes>(_mm512_permutex2var_epi32(one, first, other));
    x[row + apart] = reinterpret_cast<Lanes>(_mm512_permutex2var_epi32(one, second, other));
  }
}

/// The block of `state` and its 15 successors.
DTRAIN_WIDE void make_blocks(const std::uint32_t (&state)[kWords], std::byte* out) {
  const Lanes counters = Lanes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + state[12];
  Lanes x[kWords];
  for (std::size_t word = 0; word < kWords; ++word) x[word] = Lanes{} + state[word];
  x[12] = counters;
  for (int twice = 0; twice < 10; ++twice) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[1], x[5], x[9], x[13]);
    quarter_round(x[2], x[6], x[10], x[14]);
    quarter_round(x[3], x[7], x[11], x[15]);
    quarter_round(x[0], x[5], x[10], x[15]);
    quarter_round(x[1], x[6], x[11], x[12]);
    quarter_round(x[2], x[7], x[8], x[13]);
    quarter_round(x[3], x[4], x[9], x[14]);
  }
  for (std::size_t word = 0; word < kWords; ++word) {
    if (word != 12) x[word] += state[word];
  }
  x[12] += counters;
  exchange<8>(x);
  exchange<4>(x);
  exchange<2>(x);
  exchange<1>(x);
  std::memcpy(out, x, sizeof(x));
}

__attribute__((target("avx512f"))) void fill(std::uint32_t (&state)[kWords], std::span<std::byte> bytes) {
  const auto first = state[12];
  for (std::size_t done = 0; done < bytes.size(); done += kWideBytes) {
    state[12] = first + static_cast<std::uint32_t>(done / 64);
    make_blocks(state, bytes.data() + done);
  }
}

}  // namespace

bool has_wide_vectors() noexcept { return __builtin_cpu_supports("avx512f") != 0; }

void wide_chacha20(const std::array<std::byte, 32>& key, const std::array<std::byte, 12>& nonce,
                   std::uint32_t block, std::span<std::byte> bytes) {
  require(bytes.size() % kWideBytes == 0, "makes whole groups of blocks only",
          {.subject = "ChaCha20", .advice = "report this as a bug"});
  std::uint32_t state[kWords] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  std::memcpy(state + 4, key.data(), key.size());
  state[12] = block;
  std::memcpy(state + 13, nonce.data(), nonce.size());
  fill(state, bytes);
}

#else

bool has_wide_vectors() noexcept { return false; }

void wide_chacha20(const std::array<std::byte, 32>& /*key*/, const std::array<std::byte, 12>& /*nonce*/,
                   std::uint32_t /*block*/, std::span<std::byte> /*bytes*/) {
  throw Error("needs vectors of 512 bits", {.subject = "ChaCha20", .advice = "report this as a bug"});
}

#endif

}  // namespace dtrain::privacy
