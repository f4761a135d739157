#include "kernels/dropout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::uint64_t kDrawsPerBlock = 8;  // a block is 128 bits, a draw 16
constexpr std::uint64_t kBlocksAtOnce = 128;
static_assert(std::endian::native == std::endian::little, "draws are read as the halves of words");

template <class T>
struct Rule {
  std::uint16_t threshold;  ///< Draws below are dropped.
  T scale;
};

template <class T>
void apply(T* out, const T* input, const std::uint16_t* draws, std::size_t n, Rule<T> rule) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i) out[i] = draws[i] >= rule.threshold ? input[i] * rule.scale : T{0};
  });
}

/// One contiguous run of the whole tensor, from element `index` on.
template <class T>
void dropout_run(T* out, const T* input, std::size_t n, std::uint64_t index, const RandomKey& key,
                 Rule<T> rule) {
  std::array<std::uint16_t, kDrawsPerBlock * kBlocksAtOnce> draws;
  std::array<std::uint32_t, 4 * kBlocksAtOnce> words;
  std::size_t done = 0;
  while (done < n) {
    const std::uint64_t first = index + done;
    const auto skip = static_cast<std::size_t>(first % kDrawsPerBlock);
    const std::size_t count = std::min(draws.size() - skip, n - done);
    philox_words(words.data(), (skip + count + kDrawsPerBlock - 1) / kDrawsPerBlock, key,
                 first / kDrawsPerBlock);
    draws = std::bit_cast<decltype(draws)>(words);
    apply(out + done, input + done, draws.data() + skip, count, rule);
    done += count;
  }
}

}  // namespace

template <class T>
void dropout(T* out, const T* input, const LogicalSlice& slice, const RandomKey& key, double probability) {
  const double threshold = std::clamp(std::round(probability * 65536.0), 0.0, 65535.0);
  const Rule<T> rule{static_cast<std::uint16_t>(threshold), static_cast<T>(65536.0 / (65536.0 - threshold))};
  for (std::size_t row = 0; row < slice.rows; ++row) {
    dropout_run(out + row * slice.columns, input + row * slice.columns, slice.columns,
                slice.first_index + row * slice.row_stride, key, rule);
  }
}

template void dropout<float>(float*, const float*, const LogicalSlice&, const RandomKey&, double);
template void dropout<double>(double*, const double*, const LogicalSlice&, const RandomKey&, double);

}  // namespace dtrain::kernels
