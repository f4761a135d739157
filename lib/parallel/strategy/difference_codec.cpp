#include "parallel/strategy/difference_codec.hpp"

#include <c10/util/BFloat16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr float kMostLevels = 127;

std::size_t scales_of(std::size_t count) {
  return (count + DifferenceCodec::kBlock - 1) / DifferenceCodec::kBlock;
}

/// Of a block: the difference that one level stands for.
float scale_of(std::span<const float> block) {
  float largest = 0;
  bool finite = true;
  for (const float value : block) {
    finite &= std::isfinite(value);
    largest = std::max(largest, std::abs(value));
  }
  return finite ? largest / kMostLevels : std::numeric_limits<float>::quiet_NaN();
}

void quantise(std::span<const float> block, float scale, std::int8_t* levels) {
  if (!(scale > 0)) {
    std::memset(levels, 0, block.size());
    return;
  }
  for (std::size_t i = 0; i < block.size(); ++i) {
    const float level = std::nearbyint(block[i] / scale);
    levels[i] = static_cast<std::int8_t>(std::clamp(level, -kMostLevels, kMostLevels));
  }
}

}  // namespace

ExchangeType parse_exchange_type(std::string_view name) {
  if (name == "full") return ExchangeType::full;
  if (name == "bfloat16") return ExchangeType::bfloat16;
  if (name == "int8") return ExchangeType::int8;
  throw usage_error(fmt::format("\"{}\" is not a value it takes", name), "--exchange-type",
                    "use one of full, bfloat16, int8");
}

std::size_t DifferenceCodec::bytes(std::size_t count) const {
  if (type_ == ExchangeType::bfloat16) return count * sizeof(c10::BFloat16);
  return scales_of(count) * sizeof(float) + count;
}

void DifferenceCodec::encode(std::span<const float> differences, std::span<std::byte> message) const {
  if (type_ == ExchangeType::bfloat16) {
    for (std::size_t i = 0; i < differences.size(); ++i) {
      const c10::BFloat16 value(differences[i]);
      std::memcpy(message.data() + i * sizeof value, &value, sizeof value);
    }
    return;
  }
  const std::size_t blocks = scales_of(differences.size());
  auto* const levels = reinterpret_cast<std::int8_t*>(message.data() + blocks * sizeof(float));
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t begin = block * kBlock;
    const auto values = differences.subspan(begin, std::min(kBlock, differences.size() - begin));
    const float scale = scale_of(values);
    std::memcpy(message.data() + block * sizeof scale, &scale, sizeof scale);
    quantise(values, scale, levels + begin);
  }
}

void DifferenceCodec::add(std::span<const std::byte> message, float factor, std::span<float> sums) const {
  if (type_ == ExchangeType::bfloat16) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      c10::BFloat16 value;
      std::memcpy(&value, message.data() + i * sizeof value, sizeof value);
      sums[i] += factor * static_cast<float>(value);
    }
    return;
  }
  const std::size_t blocks = scales_of(sums.size());
  const auto* const levels = reinterpret_cast<const std::int8_t*>(message.data() + blocks * sizeof(float));
  for (std::size_t block = 0; block < blocks; ++block) {
    float scale = 0;
    std::memcpy(&scale, message.data() + block * sizeof scale, sizeof scale);
    const float level = factor * scale;
    const std::size_t end = std::min((block + 1) * kBlock, sums.size());
    for (std::size_t i = block * kBlock; i < end; ++i) sums[i] += level * static_cast<float>(levels[i]);
  }
}

}  // namespace dtrain::parallel
