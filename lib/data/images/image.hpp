#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// A picture of 8 bits per value: [height, width, 3], red, green and blue.
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool grey = false;  ///< Its file had shades of grey only; the three values of a pixel are equal.
  std::vector<std::uint8_t> pixels;
};

/// Rows and columns; 0: as they are.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool is_given() const { return height > 0; }
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

}  // namespace dtrain::data
