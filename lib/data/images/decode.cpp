#include "data/images/decode.hpp"

#include "data/images/codecs.hpp"

namespace dtrain::data {
namespace {

constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kJpeg = "\xff\xd8\xff";

}  // namespace

bool is_image(std::string_view start) { return start.starts_with(kPng) || start.starts_with(kJpeg); }

std::int64_t named_pixels(std::string_view content) {
  if (content.starts_with(kPng)) return png_pixels(content);
  return content.starts_with(kJpeg) ? jpeg_pixels(content) : 0;
}

Image decode_image(std::string_view content, const std::string& origin) {
  if (content.starts_with(kPng)) return decode_png(content, origin);
  if (content.starts_with(kJpeg)) return decode_jpeg(content, origin);
  throw image_error(content.empty() ? "is empty" : "is neither PNG nor JPEG", origin);
}

}  // namespace dtrain::data
