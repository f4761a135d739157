#pragma once

#include <string>
#include <string_view>

#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

inline Bytes from_hex(std::string_view text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

template <std::size_t count>
Block<count> block_from_hex(std::string_view text) {
  const auto bytes = from_hex(text);
  Block<count> block = {};
  for (std::size_t i = 0; i < count; ++i) block[i] = bytes.at(i);
  return block;
}

inline std::string to_hex(View bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += kDigits[static_cast<std::size_t>(byte) >> 4];
    text += kDigits[static_cast<std::size_t>(byte) & 15];
  }
  return text;
}

}  // namespace dtrain::secure_aggregation
