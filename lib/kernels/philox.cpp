#include "kernels/philox.hpp"

#include <algorithm>

#include "kernels/philox_avx2.hpp"
#include "kernels/philox_rounds.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {

std::array<std::uint32_t, 4> philox4x32(const PhiloxInput& input) { return philox_rounds(input); }

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
