#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.hpp"

namespace dtrain::data {

/// The image scaled so that it covers `size`, its proportions kept, and of that the middle: [3, height,
/// width], one plane for each colour. Each value is a mean over the pixels that it stands for, weighted by a
/// triangle (bilinear where it grows), first along rows and then along columns. Without a size: as it is.
/// Source: Pillow's resample with BILINEAR, which torchvision's Resize and CenterCrop call.
std::vector<std::uint8_t> resized_planes(const Image& image, const ImageSize& size);

}  // namespace dtrain::data
