#include <fmt/format.h>

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>  // jpeglib.h needs it

#include <jerror.h>
#include <jpeglib.h>

#include "core/printable.hpp"
#include "data/images/codecs.hpp"

namespace dtrain::data {
namespace {

/// What libjpeg does when something is wrong: it must not come back from error_exit.
struct Errors {
  jpeg_error_mgr base;  // first: libjpeg knows this part
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> text;
};

void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  errors->base.format_message(info, errors->text.data());
  std::longjmp(errors->back, 1);  // NOLINT(modernize-avoid-setjmp-longjmp)
}

/// Of warnings those that mean that pixels are missing or made up end it, too.
void weigh(j_common_ptr info, int level) {
  const bool lost = info->err->msg_code == JWRN_JPEG_EOF || info->err->msg_code == JWRN_HIT_MARKER ||
                    info->err->msg_code == JWRN_HUFF_BAD_CODE;
  if (level < 0 && lost) leave(info);
}

enum class Outcome { whole, damaged, too_large };

constexpr int kMostScans = 100;  // progressive images have about ten
constexpr int kMostComponents = 4;

/// Each scan of a few bytes goes through all blocks of an image, however large it claims to be.
void count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  fmt::format_to_n(errors->text.data(), errors->text.size() - 1, "more than {} scans", kMostScans);
  std::longjmp(errors->back, 1);  // NOLINT(modernize-avoid-setjmp-longjmp)
}

/// What one call of libjpeg's decoder needs. Calls of the library are in functions of their own, in which
/// nothing has a destructor: longjmp leaves them.
struct Decoder {
  Decoder() {
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = &leave;
    errors.base.emit_message = &weigh;
    progress.progress_monitor = &count_scans;
  }
  ~Decoder() { jpeg_destroy_decompress(&info); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  jpeg_decompress_struct info = {};
  Errors errors = {};
  jpeg_progress_mgr progress = {};

  bool has_inks() const { return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK; }
  /// Four inks take more memory for a pixel than three colours.
  std::int64_t most_pixels() const { return has_inks() ? kMostPixels / 2 : kMostPixels; }
};

Outcome read_header(Decoder& decoder, const unsigned char* bytes, std::size_t count) {
  if (setjmp(decoder.errors.back) != 0) return Outcome::damaged;  // NOLINT
  jpeg_create_decompress(&decoder.info);
  jpeg_mem_src(&decoder.info, bytes, count);
  jpeg_read_header(&decoder.info, TRUE);
  decoder.info.progress = &decoder.progress;
  const auto pixels = std::int64_t{decoder.info.image_width} * std::int64_t{decoder.info.image_height};
  if (pixels > decoder.most_pixels() || decoder.info.num_components > kMostComponents)
    return Outcome::too_large;
  decoder.info.out_color_space = decoder.has_inks() ? JCS_CMYK : JCS_RGB;
  return Outcome::whole;
}

Outcome read_rows(Decoder& decoder, unsigned char* out, std::size_t row_bytes) {
  if (setjmp(decoder.errors.back) != 0) return Outcome::damaged;  // NOLINT
  jpeg_start_decompress(&decoder.info);
  while (decoder.info.output_scanline < decoder.info.output_height) {
    JSAMPROW row = out + decoder.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.info, &row, 1);
  }
  jpeg_finish_decompress(&decoder.info);
  return Outcome::whole;
}

/// Adobe's programs store inks inverted; others as they are.
void inks_to_colours(const std::vector<std::uint8_t>& inks, bool inverted, std::vector<std::uint8_t>& out) {
  for (std::size_t i = 0; i * 4 < inks.size(); ++i) {
    const auto left = [&](std::size_t ink) {
      return inverted ? unsigned{inks[i * 4 + ink]} : 255U - inks[i * 4 + ink];
    };
    for (std::size_t colour = 0; colour < 3; ++colour)
      out[i * 3 + colour] = static_cast<std::uint8_t>((left(colour) * left(3) + 127) / 255);
  }
}

}  // namespace

std::int64_t jpeg_pixels(std::string_view content) {
  Decoder decoder;
  read_header(decoder, reinterpret_cast<const unsigned char*>(content.data()), content.size());
  return std::int64_t{decoder.info.image_width} * std::int64_t{decoder.info.image_height};
}

Image decode_jpeg(std::string_view content, const std::string& origin) {
  Decoder decoder;
  const auto require_whole = [&](Outcome outcome) {
    if (outcome == Outcome::damaged)
      throw image_error(fmt::format("is a damaged JPEG ({})", printable(decoder.errors.text.data(), 100)),
                        origin);
    if (outcome == Outcome::too_large)
      throw too_many_pixels(decoder.info.image_height, decoder.info.image_width, decoder.most_pixels(),
                            origin);
  };
  require_whole(read_header(decoder, reinterpret_cast<const unsigned char*>(content.data()), content.size()));
  const bool inks = decoder.info.out_color_space == JCS_CMYK;
  const std::size_t width = decoder.info.image_width;
  const std::size_t pixels = width * decoder.info.image_height;
  Image image{.height = decoder.info.image_height,
              .width = decoder.info.image_width,
              .grey = decoder.info.jpeg_color_space == JCS_GRAYSCALE,
              .pixels = std::vector<std::uint8_t>(3 * pixels)};
  std::vector<std::uint8_t> four(inks ? 4 * pixels : 0);
  require_whole(read_rows(decoder, inks ? four.data() : image.pixels.data(),
                          (inks ? std::size_t{4} : std::size_t{3}) * width));
  if (inks) inks_to_colours(four, decoder.info.saw_Adobe_marker == TRUE, image.pixels);
  return image;
}

}  // namespace dtrain::data
