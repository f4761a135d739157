#include "privacy/secure_aggregation/shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

constexpr int kMostShares = 255;

/// In GF(2^8) modulo x^8 + x^4 + x^3 + x + 1, without branches or tables that depend on the values.
std::uint8_t product_of(std::uint8_t a, std::uint8_t b) {
  unsigned product = 0;
  unsigned factor = a;
  for (unsigned bit = 0; bit < 8; ++bit) {
    product ^= factor & (0U - ((b >> bit) & 1U));
    factor = (factor << 1) ^ (0x11BU & (0U - (factor >> 7)));
  }
  return static_cast<std::uint8_t>(product);
}

/// a^254: of 0 it is 0.
std::uint8_t inverse_of(std::uint8_t a) {
  std::uint8_t power = a;
  std::uint8_t all = 1;
  for (int i = 0; i < 7; ++i) {
    power = product_of(power, power);
    all = product_of(all, power);
  }
  return all;
}

std::uint8_t number(std::byte byte) { return std::to_integer<std::uint8_t>(byte); }

}  // namespace

std::vector<Share> split(const Secret& secret, int shares, int threshold) {
  require(shares >= 1 && shares <= kMostShares, fmt::format("{} shares cannot be made", shares),
          {.subject = "secret sharing", .advice = "use 1 to 255", .code = ExitCode::usage});
  require(threshold <= shares, fmt::format("{} of {} shares can never come together", threshold, shares),
          {.subject = "secret sharing",
           .advice = "use a smaller threshold, or more clients",
           .code = ExitCode::usage});
  require(2 * threshold > shares, fmt::format("{} of {} shares are not more than half", threshold, shares),
          {.subject = "secret sharing", .advice = "use a larger threshold", .code = ExitCode::usage});
  std::vector<Secret> coefficients = {secret};
  for (int i = 1; i < threshold; ++i) coefficients.push_back(Secret::random());
  std::vector<Share> all;
  for (int place = 1; place <= shares; ++place) {
    std::array<std::byte, Secret::kSize> values = {};
    for (auto coefficient = coefficients.rbegin(); coefficient != coefficients.rend();
         ++coefficient) {  // Horner
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = std::byte{product_of(number(values[i]), static_cast<std::uint8_t>(place))} ^
                    coefficient->bytes()[i];
    }
    all.push_back({static_cast<std::uint8_t>(place), Secret(values)});
  }
  return all;
}

Secret joined(const std::vector<Share>& shares, int threshold) {
  std::set<std::uint8_t> places;
  for (const auto& share : shares) places.insert(share.place);
  require(places.size() == shares.size() && !places.contains(0), "are not of different places",
          {.subject = "shares of a secret"});
  require(threshold >= 1 && std::ssize(shares) >= threshold,
          fmt::format("are {}, and {} are needed", shares.size(), threshold),
          {.subject = "shares of a secret"});
  std::array<std::byte, Secret::kSize> values = {};
  for (int i = 0; i < threshold; ++i) {
    const auto& own = shares[static_cast<std::size_t>(i)];
    std::uint8_t weight = 1;  // Lagrange's polynomial of its place, at 0
    for (int j = 0; j < threshold; ++j) {
      const auto other = shares[static_cast<std::size_t>(j)].place;
      if (j == i) continue;
      weight =
          product_of(weight, product_of(other, inverse_of(static_cast<std::uint8_t>(other ^ own.place))));
    }
    for (std::size_t b = 0; b < values.size(); ++b)
      values[b] ^= std::byte{product_of(weight, number(own.values.bytes()[b]))};
  }
  return Secret(values);
}

}  // namespace dtrain::privacy
