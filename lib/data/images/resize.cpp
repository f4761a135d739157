#include "data/images/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <span>

namespace dtrain::data {
namespace {

/// Which of `from` values, and how much of each, make one of `to` values.
struct Window {
  std::int64_t first = 0;
  std::vector<float> weights;
};

/// Of the `count` from `first` on: a line of pixels that is made taller is far longer than what is kept of
/// it.
std::vector<Window> windows_of(std::int64_t from, std::int64_t to, std::int64_t first, std::int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);
  std::vector<Window> windows;
  for (std::int64_t i = first; i < first + count; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    Window window{.first = std::max<std::int64_t>(0, std::llround(std::floor(centre - reach + 0.5)))};
    const auto end = std::min<std::int64_t>(from, std::llround(std::floor(centre + reach + 0.5)));
    double sum = 0;
    for (std::int64_t k = window.first; k < end; ++k) {
      const double distance = std::abs((static_cast<double>(k) - centre + 0.5) / reach);
      window.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - distance)));
      sum += window.weights.back();
    }
    for (float& weight : window.weights) weight /= static_cast<float>(sum);
    windows.push_back(std::move(window));
  }
  return windows;
}

std::uint8_t rounded(float value) {
  return static_cast<std::uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F));
}

typedef float FourNumbers __attribute__((vector_size(16)));

/// A pixel's colours, and a fourth number that means nothing: the processor takes all at once.
struct Pixel {
  FourNumbers colours = {};
};

void widen(const std::uint8_t* line, std::vector<Pixel>& out) {
  for (Pixel& pixel : out) {
    for (int colour = 0; colour < 3; ++colour) pixel.colours[colour] = static_cast<float>(line[colour]);
    line += 3;
  }
}

/// The rows [top, bottom) of an image with `windows.size()` pixels each: [rows, pixels, 3].
std::vector<std::uint8_t> narrowed(const Image& image, std::span<const Window> windows, std::int64_t top,
                                   std::int64_t bottom) {
  std::vector<std::uint8_t> narrow(3 * windows.size() * static_cast<std::size_t>(bottom - top));
  const std::int64_t first = windows.front().first;
  const std::int64_t end = windows.back().first + std::ssize(windows.back().weights);
  std::vector<Pixel> line(static_cast<std::size_t>(end - first));
  std::uint8_t* out = narrow.data();
  for (std::int64_t y = top; y < bottom; ++y) {
    widen(image.pixels.data() + 3 * (y * image.width + first), line);
    for (const Window& window : windows) {
      const Pixel* pixel = line.data() + (window.first - first);
      FourNumbers sum = {};
      for (const float weight : window.weights) sum += weight * (pixel++)->colours;
      for (int colour = 0; colour < 3; ++colour) *out++ = rounded(sum[colour]);
    }
  }
  return narrow;
}

/// The same rows of the columns [first, first + width) as they are.
std::vector<std::uint8_t> cut_out(const Image& image, std::int64_t first, std::int64_t width,
                                  std::int64_t top, std::int64_t bottom) {
  std::vector<std::uint8_t> narrow;
  narrow.reserve(static_cast<std::size_t>(3 * width * (bottom - top)));
  for (std::int64_t y = top; y < bottom; ++y) {
    const auto line = image.pixels.begin() + 3 * (y * image.width + first);
    narrow.insert(narrow.end(), line, line + 3 * width);
  }
  return narrow;
}

/// Of one direction: how long it becomes, and where the part that is kept begins.
struct Extent {
  std::int64_t whole = 0;
  std::int64_t first = 0;
};

/// The shorter side, against what is wanted, is filled; the other is cut. Source: torchvision's functional
/// resize (the longer side is cut to whole pixels) and center_crop.
void cover(const Image& image, const ImageSize& size, Extent& rows, Extent& columns) {
  const bool by_height = image.height * size.width <= image.width * size.height;
  rows.whole = by_height ? size.height : std::max(size.height, image.height * size.width / image.width);
  columns.whole = by_height ? std::max(size.width, image.width * size.height / image.height) : size.width;
  rows.first = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(rows.whole - size.height) / 2.0));
  columns.first =
      static_cast<std::int64_t>(std::nearbyint(static_cast<double>(columns.whole - size.width) / 2.0));
}

}  // namespace

std::vector<std::uint8_t> resized_planes(const Image& image, const ImageSize& wanted) {
  const ImageSize size = wanted.is_given() ? wanted : ImageSize{image.height, image.width};
  Extent rows;
  Extent columns;
  cover(image, size, rows, columns);
  const auto across = windows_of(image.width, columns.whole, columns.first, size.width);
  const auto down = windows_of(image.height, rows.whole, rows.first, size.height);
  // Of a column of pixels that is made wider nearly all is cut off.
  const std::int64_t top = down.front().first;
  const std::int64_t bottom = down.back().first + std::ssize(down.back().weights);
  // Pillow rounds between the two passes, and so do we: the same bytes.
  const std::vector<std::uint8_t> narrow = columns.whole == image.width
                                               ? cut_out(image, columns.first, size.width, top, bottom)
                                               : narrowed(image, across, top, bottom);
  const auto width = static_cast<std::size_t>(size.width);
  const auto plane = width * static_cast<std::size_t>(size.height);
  const std::size_t row_values = 3 * width;
  std::vector<std::uint8_t> planes(3 * plane);
  const bool keeps_height = rows.whole == image.height;
  std::vector<float> sums(row_values);
  for (std::int64_t y = 0; y < size.height; ++y) {
    const Window& window = down[static_cast<std::size_t>(y)];
    std::uint8_t* const out = planes.data() + static_cast<std::size_t>(y) * width;
    if (keeps_height) {
      const std::uint8_t* const row =
          narrow.data() + static_cast<std::size_t>(y + rows.first - top) * row_values;
      for (std::size_t x = 0; x < row_values; ++x) out[(x % 3) * plane + x / 3] = row[x];
      continue;
    }
    std::ranges::fill(sums, 0.0F);
    const std::uint8_t* row = narrow.data() + static_cast<std::size_t>(window.first - top) * row_values;
    for (const float weight : window.weights) {
      for (std::size_t x = 0; x < row_values; ++x) sums[x] += weight * row[x];
      row += row_values;
    }
    for (std::size_t x = 0; x < width; ++x)
      for (std::size_t colour = 0; colour < 3; ++colour)
        out[colour * plane + x] = rounded(sums[3 * x + colour]);
  }
  return planes;
}

}  // namespace dtrain::data
