#pragma once

#include <string>
#include <string_view>

#include "data/images/image.hpp"

namespace dtrain::data {

/// Whether a file begins as PNG or JPEG files do.
bool is_image(std::string_view start);

/// The picture in a PNG or JPEG file, of any kind: palettes, grey and CMYK become red, green and blue, 16
/// bits become 8, and what is transparent lies on black. `content`: of the whole file; `origin` names it.
/// Throws data_error for a file that is damaged, truncated, larger than 2^27 pixels or neither of the two;
/// usage_error when this dtrain was built without libpng or libjpeg.
Image decode_image(std::string_view content, const std::string& origin);

}  // namespace dtrain::data
