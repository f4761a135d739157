#include "data/unlabelled/pixel_scale.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/error.hpp"

namespace dtrain::data {
namespace {

/// Whether values in [0, 1] can have these means and deviations: no variance is above mean (1 - mean). A
/// channel without deviation has 1. Source: Bhatia and Davis 2000, A better bound on the variance.
bool lie_in_unit(const DatasetInfo& trained) {
  constexpr double kRounding = 1e-6;
  for (std::size_t channel = 0; channel < trained.mean.size(); ++channel) {
    const double mean = trained.mean[channel];
    const double deviation = trained.std_dev[channel];
    if (mean < -kRounding || mean > 1 + kRounding) return false;
    if (deviation != 1 && deviation * deviation > mean * (1 - mean) + kRounding) return false;
  }
  return true;
}

std::string in_words(const std::vector<double>& values) {
  return fmt::format("{:.4g}", fmt::join(values, ", "));
}

struct Extremes {
  float least = 0;
  float most = 0;
  double farthest = 0;  ///< Of a channel's mean from the training's, in its deviations.
};

/// `pixels`: float32 [n, C, H, W] or [n, H, W].
Extremes extremes_of(const DatasetInfo& trained, const Column& pixels) {
  const auto values = read_whole<float>(pixels);
  const auto [least, most] = std::ranges::minmax(values);
  Extremes found{.least = least, .most = most};
  const std::size_t channels = trained.mean.size();
  const std::size_t plane = pixels.row_bytes() / sizeof(float) / channels;
  std::vector<double> sums(channels);
  for (std::size_t i = 0; i < values.size(); ++i) sums[i / plane % channels] += values[i];
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const double mean = sums[channel] / static_cast<double>(values.size() / channels);
    found.farthest =
        std::max(found.farthest, std::abs(mean - trained.mean[channel]) / trained.std_dev[channel]);
  }
  return found;
}

}  // namespace

void require_scale_of_training(const DatasetInfo& trained, const Column& pixels, const std::string& subject) {
  if (trained.mean.empty()) return;
  const bool unit = lie_in_unit(trained);
  const std::string of_training =
      fmt::format("the training's images were floats with the mean {} and the deviation {}",
                  in_words(trained.mean), in_words(trained.std_dev));
  if (pixels.type() == ElementType::uint8) {
    if (!unit)
      throw data_error("has images of bytes, which become values in 0 to 1, and " + of_training, subject,
                       "write the images with numpy.save as floats like those of the training");
    return;
  }
  // Deviations from the training, and a deviation that values in [0, 1] cannot have.
  constexpr double kFar = 8;
  constexpr double kLarge = 16;
  const Extremes found = extremes_of(trained, pixels);
  const std::string here = fmt::format("has images of floats from {:.4g} to {:.4g}", found.least, found.most);
  if (unit && found.most > 2 && found.farthest > kFar)
    throw data_error(here + ", and the training's lay in 0 to 1", subject,
                     "give bytes, or floats divided by 255 as in the training");
  if (!unit && found.least >= 0 && found.most > 0 && found.most <= 1 &&
      std::ranges::max(trained.std_dev) > kLarge)
    throw data_error(here + ", and " + of_training, subject, "give floats like those of the training");
}

}  // namespace dtrain::data
