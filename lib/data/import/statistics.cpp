#include "data/import/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

namespace dtrain::data {
namespace {

/// A sample as [outer, channels, inner].
struct ChannelView {
  std::int64_t outer = 1;
  std::int64_t channels = 1;
  std::int64_t inner = 1;

  explicit ChannelView(const std::vector<std::int64_t>& shape) {
    if (shape.size() == 3) {  // [C, H, W]
      channels = shape[0];
      inner = shape[1] * shape[2];
    } else {  // [F], [T, F]
      channels = shape.back();
      outer = shape.size() == 2 ? shape[0] : 1;
    }
  }

  /// Calls visit(channel, element) for each element of a sample, in the order they are stored.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    std::int64_t element = 0;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t channel = 0; channel < channels; ++channel)
        for (std::int64_t i = 0; i < inner; ++i) visit(channel, element++);
  }
};

/// Sums of x - shift and of its square: the shift is near the mean, so that large offsets cancel no digits.
struct Moments {
  double shift = 0;
  double sum = 0;
  double squares = 0;
};

ChannelStatistics from_moments(const std::vector<Moments>& moments, double count) {
  ChannelStatistics result;
  for (const Moments& channel : moments) {
    const double mean = channel.sum / count;
    const double variance = std::max(0.0, channel.squares / count - mean * mean);
    result.mean.push_back(mean + channel.shift);
    result.std_dev.push_back(variance > 0 ? std::sqrt(variance) : 1.0);
  }
  return result;
}

/// Bytes are counted, so that the sums are exact.
std::vector<Moments> moments_of_bytes(const Column& inputs, const ChannelView& view,
                                      std::span<const std::int64_t> rows) {
  std::vector<std::array<std::int64_t, 256>> histogram(static_cast<std::size_t>(view.channels));
  for (auto& counts : histogram) counts.fill(0);
  std::vector<std::byte> row(inputs.row_bytes());
  for (const std::int64_t id : rows) {
    inputs.read(id, 1, row.data());
    view.for_each([&](std::int64_t channel, std::int64_t i) {
      ++histogram[channel][std::to_integer<std::size_t>(row[i])];
    });
  }
  std::vector<Moments> moments(histogram.size());
  for (std::size_t channel = 0; channel < histogram.size(); ++channel)
    for (int byte = 0; byte < 256; ++byte) {
      const auto count = static_cast<double>(histogram[channel][byte]);
      moments[channel].sum += count * byte / 255.0;
      moments[channel].squares += count * (byte / 255.0) * (byte / 255.0);
    }
  return moments;
}

std::vector<Moments> moments_of_floats(const Column& inputs, const ChannelView& view,
                                       std::span<const std::int64_t> rows) {
  std::vector<Moments> moments(static_cast<std::size_t>(view.channels));
  std::vector<float> row(inputs.row_bytes() / sizeof(float));
  const auto read = [&](std::int64_t id) { inputs.read(id, 1, reinterpret_cast<std::byte*>(row.data())); };
  if (!rows.empty()) {
    read(rows.front());
    view.for_each([&](std::int64_t channel, std::int64_t i) { moments[channel].shift = row[i]; });
  }
  for (const std::int64_t id : rows) {
    read(id);
    view.for_each([&](std::int64_t channel, std::int64_t i) {
      const double moved = row[i] - moments[channel].shift;
      moments[channel].sum += moved;
      moments[channel].squares += moved * moved;
    });
  }
  return moments;
}

}  // namespace

ChannelStatistics channel_statistics(const Column& inputs, const std::vector<std::int64_t>& sample_shape,
                                     std::span<const std::int64_t> rows) {
  const ChannelView view(sample_shape);
  const double count = static_cast<double>(rows.size()) * static_cast<double>(view.outer * view.inner);
  return from_moments(inputs.type() == ElementType::uint8 ? moments_of_bytes(inputs, view, rows)
                                                          : moments_of_floats(inputs, view, rows),
                      count);
}

ChannelStatistics channel_statistics(const Column& inputs, const std::vector<std::int64_t>& sample_shape) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(inputs.rows()));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return channel_statistics(inputs, sample_shape, rows);
}

}  // namespace dtrain::data
