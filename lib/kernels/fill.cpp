#include "kernels/fill.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace dtrain::kernels {
namespace {

constexpr std::uint64_t kFillBlocksAtOnce = 64;

/// Calls `use(word index of the stream's element, four words)` chunk by chunk: `use(offset, words, skip,
/// count)` gets elements [offset, offset + count) of the output from words + skip.
template <class Use>
void for_each_chunk(std::size_t n, const RandomKey& key, std::uint64_t first_index, const Use& use) {
  std::array<std::uint32_t, 4 * kFillBlocksAtOnce> words;
  std::size_t done = 0;
  while (done < n) {
    const std::uint64_t index = first_index + done;
    const auto skip = static_cast<std::size_t>(index % 4);
    const std::size_t count = std::min(words.size() - skip, n - done);
    philox_words(words.data(), (skip + count + 3) / 4, key, index / 4);
    use(done, words.data(), skip, count);
    done += count;
  }
}

/// Element `i` of the words: both elements of a pair come from the pair's two words.
double normal_from(const std::uint32_t* words, std::size_t i) {
  const std::size_t pair = i / 2 * 2;
  const double above_zero = (static_cast<double>(words[pair]) + 1.0) * 0x1.0p-32;  // (0, 1]: log is finite
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(words[pair + 1]) * 0x1.0p-32;
  const double radius = std::sqrt(-2.0 * std::log(above_zero));
  return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace

template <class T>
void fill_uniform(T* out, std::size_t n, const RandomKey& key, std::uint64_t first_index, float low,
                  float high) {
  const float width = high - low;
  for_each_chunk(n, key, first_index,
                 [&](std::size_t offset, const std::uint32_t* words, std::size_t skip, std::size_t count) {
                   for (std::size_t i = 0; i < count; ++i) {
                     out[offset + i] = static_cast<T>(low + width * to_unit(words[skip + i]));
                   }
                 });
}

template <class T>
void fill_normal(T* out, std::size_t n, const RandomKey& key, std::uint64_t first_index, float mean,
                 float deviation) {
  for_each_chunk(n, key, first_index,
                 [&](std::size_t offset, const std::uint32_t* words, std::size_t skip, std::size_t count) {
                   for (std::size_t i = 0; i < count; ++i) {
                     const auto normal = static_cast<float>(normal_from(words, skip + i));
                     out[offset + i] = static_cast<T>(mean + deviation * normal);
                   }
                 });
}

template void fill_uniform<float>(float*, std::size_t, const RandomKey&, std::uint64_t, float, float);
template void fill_uniform<double>(double*, std::size_t, const RandomKey&, std::uint64_t, float, float);
template void fill_normal<float>(float*, std::size_t, const RandomKey&, std::uint64_t, float, float);
template void fill_normal<double>(double*, std::size_t, const RandomKey&, std::uint64_t, float, float);

}  // namespace dtrain::kernels
