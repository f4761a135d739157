#include "kernels/philox.hpp"

#include <algorithm>

#include "kernels/philox_avx2.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {

std::array<std::uint32_t, 4> philox4x32(const PhiloxInput& input) {
  auto [k0, k1] = input.key;
  auto [c0, c1, c2, c3] = input.counter;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c0;
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return {c0, c1, c2, c3};
}

std::array<std::uint32_t, 4> philox_block(const RandomKey& key, std::uint64_t block) {
  return philox4x32(philox_input(key, block));
}

void philox_words(std::uint32_t* words, std::uint64_t blocks, const RandomKey& key,
                  std::uint64_t first_block) {
  std::uint64_t done = 0;
#if defined(__x86_64__)
  if (has_avx2()) {
    for (; done + 8 <= blocks; done += 8) {
      const std::uint64_t first = first_block + done;
      if (!one_key(first)) {
        for (std::uint64_t i = 0; i < 8; ++i) {
          std::ranges::copy(philox_block(key, first + i), words + 4 * (done + i));
        }
        continue;
      }
      philox_eight_blocks(words + 4 * done, philox_input(key, first));
    }
  }
#endif
  for (; done < blocks; ++done) std::ranges::copy(philox_block(key, first_block + done), words + 4 * done);
}

}  // namespace dtrain::kernels
