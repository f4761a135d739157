#pragma once

#include <cstdint>
#include <string_view>

#include "core/error.hpp"
#include "data/images/image.hpp"

namespace dtrain::data {

// One file each, with the library that reads the kind, or without it.

inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 27;  ///< A small file may claim any size.

/// See decode_image. Throws data_error naming `origin`.
Image decode_png(std::string_view content, const std::string& origin);
Image decode_jpeg(std::string_view content, const std::string& origin);

/// For an image that cannot be decoded.
inline Error image_error(const std::string& problem, const std::string& origin) {
  return data_error(problem, origin, "save it again, or leave broken images out with --skip-broken");
}

}  // namespace dtrain::data
