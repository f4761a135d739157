#include <fmt/format.h>
#include <png.h>

#include <memory>

#include "core/printable.hpp"
#include "data/images/codecs.hpp"

namespace dtrain::data {
namespace {

struct Free {
  void operator()(png_image* image) const { png_image_free(image); }
};

}  // namespace

// Source: libpng's manual, "The simplified API".
std::int64_t png_pixels(std::string_view content) {
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, Free> freed(&header);
  if (png_image_begin_read_from_memory(&header, content.data(), content.size()) == 0) return 0;
  return std::int64_t{header.width} * std::int64_t{header.height};
}

Image decode_png(std::string_view content, const std::string& origin) {
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, Free> freed(&header);
  const auto fail = [&] {
    return image_error(fmt::format("is a damaged PNG ({})", printable(header.message, 100)), origin);
  };
  if (png_image_begin_read_from_memory(&header, content.data(), content.size()) == 0) throw fail();
  const auto pixels = std::int64_t{header.width} * std::int64_t{header.height};
  if (pixels > kMostPixels) throw too_many_pixels(header.height, header.width, kMostPixels, origin);
  Image image{.height = header.height,
              .width = header.width,
              .grey = (header.format & PNG_FORMAT_FLAG_COLOR) == 0,
              .pixels = std::vector<std::uint8_t>(static_cast<std::size_t>(3 * pixels))};
  header.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // values of 16 bits mean what those of 8 bits mean
  header.format = PNG_FORMAT_RGB;
  const png_color black = {0, 0, 0};
  if (png_image_finish_read(&header, &black, image.pixels.data(), 0, nullptr) == 0) throw fail();
  return image;
}

}  // namespace dtrain::data
