#include "secure_aggregation/shamir.hpp"

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

using Field = std::uint8_t;  // polynomials over GF(2) modulo x^8 + x^4 + x^3 + x + 1

/// No table and no branch: either would let the cache or the time tell what `value` is.
Field times_x(Field value) {
  return static_cast<Field>((value << 1) ^ (static_cast<Field>(-(value >> 7)) & 0x1B));
}

Field product(Field one, Field other) {
  Field sum = 0;
  for (int bit = 7; bit >= 0; --bit) {
    sum = static_cast<Field>(times_x(sum) ^ (static_cast<Field>(-((other >> bit) & 1)) & one));
  }
  return sum;
}

Field inverse(Field value) {  // value^254
  Field power = value;
  Field result = 1;
  for (int bit = 1; bit < 8; ++bit) {
    power = product(power, power);
    result = product(result, power);
  }
  return result;
}

/// value *= factor, for each byte. `factor` is public.
void multiply(Block<32>& values, Field factor) {
  for (auto& value : values) value = std::byte{product(static_cast<Field>(value), factor)};
}

void add(Block<32>& to, const Block<32>& values) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] ^= values[i];
}

}  // namespace

std::vector<Share> split_secret(const Secret& secret, int threshold, int holders,
                                privacy::Keystream& random) {
  require(1 <= threshold && threshold <= holders && holders <= kMostHolders,
          "a secret cannot be split among these holders",
          {.subject = "secure aggregation",
           .advice = "use at most 255 holders and a threshold of at most those"});
  std::vector<Secret> coefficients(static_cast<std::size_t>(threshold));  // the highest first
  for (auto& coefficient : coefficients) random.fill(coefficient.bytes());
  coefficients.back() = secret;
  std::vector<Share> shares(static_cast<std::size_t>(holders));
  for (std::size_t k = 0; k < shares.size(); ++k) {
    auto& share = shares[k];
    share.place = static_cast<Field>(k + 1);
    for (const auto& coefficient : coefficients) {
      multiply(share.bytes, share.place);
      add(share.bytes, coefficient.bytes());
    }
  }
  return shares;
}

Secret join_secret(std::span<const Share> shares) {
  Secret secret;
  for (const auto& share : shares) {
    Field factor = 1;  // the value at 0 of the polynomial that is 1 at this place and 0 at the others
    for (const auto& other : shares) {
      if (&other == &share) continue;
      factor = product(factor, product(other.place, inverse(static_cast<Field>(other.place ^ share.place))));
    }
    auto part = share.bytes;
    multiply(part, factor);
    add(secret.bytes(), part);
  }
  return secret;
}

}  // namespace dtrain::secure_aggregation
