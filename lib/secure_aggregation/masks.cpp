#include "secure_aggregation/masks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

static_assert(std::endian::native == std::endian::little,
              "elements of the ring are sent as they lie in memory");

template <class Element>
void add_elements(std::span<std::byte> into, View words, Sign sign) {
  constexpr std::size_t kBytes = sizeof(Element);
  std::byte* to = into.data();
  const std::byte* from = words.data();
  const auto count = words.size() / kBytes;
  // Two's complement: subtracting is adding (x ^ -1) + 1.
  const Element flip = sign == Sign::minus ? static_cast<Element>(-1) : 0;
  const Element one = sign == Sign::minus ? 1 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    Element sum = 0;
    Element word = 0;
    std::memcpy(&sum, to + i * kBytes, kBytes);
    std::memcpy(&word, from + i * kBytes, kBytes);
    sum += (word ^ flip) + one;
    std::memcpy(to + i * kBytes, &sum, kBytes);
  }
}

}  // namespace

void add_words(std::span<std::byte> into, View words, int ring_bits, Sign sign) {
  require(into.size() == words.size(), "two vectors differ in size", {.subject = "secure aggregation"});
  if (ring_bits == 32) {
    add_elements<std::uint32_t>(into, words, sign);
  } else {
    add_elements<std::uint64_t>(into, words, sign);
  }
}

void add_mask(std::span<std::byte> into, const Secret& seed, int ring_bits, Sign sign) {
  constexpr std::size_t kAtOnce = 16384;  // bytes: stays in the first cache
  std::array<std::byte, kAtOnce> stream;
  for (std::size_t done = 0; done < into.size(); done += kAtOnce) {
    const auto part = into.subspan(done, std::min(kAtOnce, into.size() - done));
    const auto mask = std::span(stream).first(part.size());
    chacha20(seed, Nonce{}, static_cast<std::uint32_t>(done / 64), mask);
    add_words(part, mask, ring_bits, sign);
  }
}

}  // namespace dtrain::secure_aggregation
