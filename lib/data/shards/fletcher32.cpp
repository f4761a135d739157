#include "data/shards/fletcher32.hpp"

#include <algorithm>
#include <cstring>

// GCC compiles the loop twice and picks at start; the bits do not depend on which.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their runtime is not up when the choice is made
#define DTRAIN_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define DTRAIN_VECTOR_CLONES
#endif

namespace dtrain::data {
namespace {

constexpr std::size_t kLanes = 32;          // words taken at a time: four vectors of eight
constexpr std::size_t kRowsPerBlock = 256;  // (256 x 257 / 2) x 65535 < 2^32: no lane can overflow
constexpr std::uint64_t kModulus = 65535;

typedef std::uint16_t Words __attribute__((vector_size(16)));
typedef std::uint32_t Sums __attribute__((vector_size(32)));

/// Both sums of a block of `rows` rows of kLanes words: word i of N counts once in `plain` and N - i times in
/// `weighted`. Words are read little-endian; see fletcher32 below.
struct BlockSums {
  std::uint64_t plain = 0;
  std::uint64_t weighted = 0;
};

DTRAIN_VECTOR_CLONES
void sum_block(const std::byte* bytes, std::size_t rows, BlockSums& result) {
  constexpr std::size_t kVectors = kLanes / 8;
  Sums plain[kVectors] = {};
  Sums weighted[kVectors] = {};  // lane l of row j counts rows - j times: the running sum of `plain`
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      Words words;
      std::memcpy(&words, bytes + (row * kLanes + v * 8) * 2, sizeof(words));
      plain[v] += __builtin_convertvector(words, Sums);
      weighted[v] += plain[v];
    }
  }
  // Word (row, lane) is number row * kLanes + lane, so its weight is (rows - row) * kLanes - lane.
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t sum = plain[lane / 8][lane % 8];
    result.plain += sum;
    result.weighted += std::uint64_t{weighted[lane / 8][lane % 8]} * kLanes - sum * lane;
  }
}

/// As HDF5's folding leaves it: 0 only when nothing but zeros was summed.
std::uint64_t folded(std::uint64_t sum) { return sum == 0 ? 0 : (sum - 1) % kModulus + 1; }

}  // namespace

std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  constexpr std::size_t kRowBytes = kLanes * 2;
  // The sums are taken of little-endian words: swapping the bytes of a word is multiplying by 256 modulo
  // 65535, so both sums are swapped once at the end instead of every word.
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  while (left >= kRowBytes) {
    const std::size_t rows = std::min(left / kRowBytes, kRowsPerBlock);
    BlockSums block;
    sum_block(at, rows, block);
    second = folded(second + first * (rows * kLanes) + block.weighted);
    first = folded(first + block.plain);
    at += rows * kRowBytes;
    left -= rows * kRowBytes;
  }
  while (left > 0) {
    std::uint64_t word = std::to_integer<std::uint64_t>(at[0]);
    const std::size_t step = std::min<std::size_t>(left, 2);
    if (step == 2) word |= std::to_integer<std::uint64_t>(at[1]) << 8;  // an odd last byte stays alone
    first = folded(first + word);
    second = folded(second + first);
    at += step;
    left -= step;
  }
  return static_cast<std::uint32_t>(folded(second * 256) << 16 | folded(first * 256));
}

}  // namespace dtrain::data
