#include "privacy/secure_aggregation/ring.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

constexpr int kRingBits = 64;

/// Bits for whole numbers up to `most`.
double bits_for(double most) { return std::log2(most); }

}  // namespace

Ring::Ring(const Extents& extents) : extents_(extents) {
  require(std::isfinite(extents.largest) && extents.largest > 0 && extents.fraction_bits >= 0 &&
              extents.largest_weight >= 1 && extents.clients >= 1,
          "has extents that are not positive",
          {.subject = "the ring of a secure sum", .code = ExitCode::usage});
  // The rounding to a multiple adds at most a half; one bit is the sign's.
  const double steps = extents.largest * std::exp2(extents.fraction_bits) + 1;
  const double bits = bits_for(steps) + bits_for(static_cast<double>(extents.largest_weight)) +
                      bits_for(static_cast<double>(extents.clients)) + 1;
  require(bits < kRingBits,
          fmt::format("has {} bits, and sums of {} clients with weights up to {} need {:.0f}", kRingBits,
                      extents.clients, extents.largest_weight, std::ceil(bits)),
          {.subject = "the ring of a secure sum",
           .advice = "clip values to less, keep fewer bits of fractions, or take smaller weights",
           .code = ExitCode::usage});
}

std::vector<std::uint64_t> Ring::encoded(std::span<const double> values, std::int64_t weight) const {
  require(weight >= 0 && weight <= extents_.largest_weight, "is not from 0 to the largest",
          {.subject = "the weight of an update"});
  std::vector<std::uint64_t> all;
  all.reserve(values.size());
  for (const double value : values) {
    require(std::isfinite(value) && std::abs(value) <= extents_.largest,
            "has a value beyond what it was clipped to",
            {.subject = "an update", .advice = "clip it before, or look for numbers that are not finite"});
    const auto steps = std::llround(std::ldexp(value, extents_.fraction_bits));
    all.push_back(static_cast<std::uint64_t>(steps) * static_cast<std::uint64_t>(weight));
  }
  return all;
}

std::vector<double> Ring::decoded(std::span<const std::uint64_t> sum, std::int64_t weights) const {
  std::vector<double> all;
  all.reserve(sum.size());
  for (const auto element : sum) {
    all.push_back(
        std::ldexp(static_cast<double>(static_cast<std::int64_t>(element)), -extents_.fraction_bits) /
        static_cast<double>(weights));
  }
  return all;
}

void add_mask(std::span<std::uint64_t> values, const Secret& seed, std::uint64_t round, Sign sign) {
  constexpr std::size_t kAtOnce = 4096;  // of 8 bytes: whole blocks of ChaCha20
  require(sodium_init() >= 0, "gives no random numbers",
          {.subject = "libsodium", .advice = "check /dev/urandom"});
  std::array<unsigned char, crypto_stream_chacha20_ietf_NONCEBYTES> nonce = {};
  std::memcpy(nonce.data() + 4, &round, sizeof(round));
  std::vector<std::uint64_t> mask(std::min(kAtOnce, values.size()));
  const auto* const key = reinterpret_cast<const unsigned char*>(seed.bytes().data());
  for (std::size_t begin = 0; begin < values.size(); begin += kAtOnce) {
    const auto part = values.subspan(begin, std::min(kAtOnce, values.size() - begin));
    auto* const bytes = reinterpret_cast<unsigned char*>(mask.data());
    std::fill(mask.begin(), mask.end(), 0);
    constexpr std::size_t kBlock = 64;
    crypto_stream_chacha20_ietf_xor_ic(bytes, bytes, 8 * part.size(), nonce.data(),
                                       static_cast<std::uint32_t>(8 * begin / kBlock), key);
    for (std::size_t i = 0; i < part.size(); ++i) part[i] += sign == Sign::plus ? mask[i] : 0 - mask[i];
  }
  sodium_memzero(mask.data(), 8 * mask.size());
}

}  // namespace dtrain::privacy
