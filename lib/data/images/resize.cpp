#include "data/images/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

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
  const auto width = static_cast<std::size_t>(size.width);
  // Of a column of pixels that is made wider nearly all is cut off.
  const std::int64_t top = down.front().first;
  const std::int64_t bottom = down.back().first + static_cast<std::int64_t>(down.back().weights.size());
  // Pillow rounds between the two passes, and so do we: the same bytes.
  std::vector<std::uint8_t> narrow(3 * width * static_cast<std::size_t>(bottom - top));  // [rows, width, 3]
  const bool keeps_width = columns.whole == image.width;
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* const line = image.pixels.data() + 3 * y * image.width;
    std::uint8_t* const out = narrow.data() + 3 * width * static_cast<std::size_t>(y - top);
    for (std::int64_t x = 0; x < size.width; ++x) {
      const Window& window = across[static_cast<std::size_t>(x)];
      for (int colour = 0; colour < 3; ++colour) {
        float sum = 0;
        for (std::size_t k = 0; !keeps_width && k < window.weights.size(); ++k)
          sum += window.weights[k] * line[3 * (window.first + static_cast<std::int64_t>(k)) + colour];
        out[3 * x + colour] = keeps_width ? line[3 * (x + columns.first) + colour] : rounded(sum);
      }
    }
  }
  const auto plane = width * static_cast<std::size_t>(size.height);
  std::vector<std::uint8_t> planes(3 * plane);
  const bool keeps_height = rows.whole == image.height;
  for (std::int64_t y = 0; y < size.height; ++y) {
    const Window& window = down[static_cast<std::size_t>(y)];
    for (std::size_t x = 0; x < 3 * width; ++x) {
      float sum = 0;
      for (std::size_t k = 0; !keeps_height && k < window.weights.size(); ++k)
        sum += window.weights[k] * narrow[(static_cast<std::size_t>(window.first - top) + k) * 3 * width + x];
      const auto same = static_cast<std::size_t>(y + rows.first - top) * 3 * width + x;
      planes[(x % 3) * plane + static_cast<std::size_t>(y) * width + x / 3] =
          keeps_height ? narrow[same] : rounded(sum);
    }
  }
  return planes;
}

}  // namespace dtrain::data
