#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/images/image.hpp"

namespace dtrain::data {

/// Whether a file begins as PNG or JPEG files do.
bool is_image(std::string_view start);

/// Pixels that the file's header names, before anything is allocated; 0 where it names none.
std::int64_t named_pixels(std::string_view content);

/// The picture in a PNG or JPEG file, of any kind: palettes, grey and CMYK become red, green and blue, 16
/// bits become 8, and what is transparent lies on black. `content`: of the whole file; `origin` names it.
/// Throws data_error for a file that is damaged, truncated, of more than 2^26 pixels (inks: 2^25) or neither
/// of the two; usage_error when this dtrain was built without libpng or libjpeg.
Image decode_image(std::string_view content, const std::string& origin);

}  // namespace dtrain::data
