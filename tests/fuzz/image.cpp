// A PNG or JPEG file: its header, its pixels, and the picture brought to other sizes.
#include <string_view>

#include "data/images/decode.hpp"
#include "data/images/resize.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  constexpr std::int64_t kMostPixels = 1 << 20;  // more take long, and go the same way
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  const auto named = data::named_pixels(content);
  if (named > kMostPixels) return 0;
  return fuzz::expect_refusal({ExitCode::data}, [&] {
    const auto image = data::decode_image(content, "image");
    const auto pixels = image.height * image.width;
    if (pixels != named || image.pixels.size() != static_cast<std::size_t>(3 * pixels)) std::abort();
    if (data::resized_planes(image, {}).size() != image.pixels.size()) std::abort();
    if (data::resized_planes(image, {.height = 5, .width = 7}).size() != std::size_t{3} * 5 * 7) std::abort();
  });
}
