#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "core/error.hpp"
#include "data/images/image.hpp"

namespace dtrain::data {

// One file each, with the library that reads the kind, or without it.

/// A small file may claim any size, and 67 million pixels take 600 MB on their way to a sample.
inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

/// Pixels that a file's header names; 0: there is no header that can be read.
std::int64_t png_pixels(std::string_view content);
std::int64_t jpeg_pixels(std::string_view content);

/// See decode_image. Throws data_error naming `origin`.
Image decode_png(std::string_view content, const std::string& origin);
Image decode_jpeg(std::string_view content, const std::string& origin);

/// For an image that cannot be decoded.
inline Error image_error(const std::string& problem, const std::string& origin) {
  return data_error(problem, origin, "save it again, or leave broken images out with --skip-broken");
}

inline Error too_many_pixels(std::int64_t height, std::int64_t width, std::int64_t most,
                             const std::string& origin) {
  return image_error(fmt::format("claims {} x {} pixels, more than the {} million that dtrain takes", width,
                                 height, most / 1'000'000),
                     origin);
}

}  // namespace dtrain::data
