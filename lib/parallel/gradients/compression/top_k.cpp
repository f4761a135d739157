#include "parallel/gradients/compression/top_k.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "parallel/gradients/compression/wire_message.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::uint32_t kSize = 0x7FFF'FFFFU;  // a float's bits without its sign: larger ones are larger
constexpr int kLowBits = 16;

std::uint32_t size_bits(float value) { return std::bit_cast<std::uint32_t>(value) & kSize; }

/// A value and where it belongs.
struct Sent {
  std::uint32_t place;
  float value;
};

/// The bits of the `count`th largest size, and how many are larger.
struct Threshold {
  std::uint32_t bits = 0;
  std::size_t larger = 0;
};

/// Of the sizes that have the same upper bits the right one is searched alone.
Threshold threshold_of(std::span<const float> values, std::size_t count) {
  std::vector<std::size_t> tally((kSize >> kLowBits) + 1, 0);
  for (const float value : values) ++tally[size_bits(value) >> kLowBits];
  Threshold threshold;
  std::size_t upper = tally.size() - 1;
  for (; upper > 0 && threshold.larger + tally[upper] < count; --upper) threshold.larger += tally[upper];
  std::vector<std::uint32_t> alike;
  alike.reserve(tally[upper]);
  for (const float value : values) {
    if (size_bits(value) >> kLowBits == upper) alike.push_back(size_bits(value));
  }
  const auto wanted = alike.begin() + static_cast<std::ptrdiff_t>(count - threshold.larger - 1);
  std::nth_element(alike.begin(), wanted, alike.end(), std::greater<>());
  threshold.bits = *wanted;
  threshold.larger += static_cast<std::size_t>(
      std::count_if(alike.begin(), wanted, [&](std::uint32_t bits) { return bits > threshold.bits; }));
  return threshold;
}

class TopKSum final : public comm::MessageRounds {
 public:
  TopKSum(std::span<float> values, std::span<float> error, float samples, std::size_t sent, int node,
          int nodes)
      : values_(values), error_(error), samples_(samples), sent_(sent), node_(node), nodes_(nodes) {}

  std::optional<Round> next() override {
    if (!messages_.empty()) {
      add_up();
      return std::nullopt;
    }
    Round round;
    for (int node = 0; node < nodes_; ++node) messages_.emplace_back(sent_ * sizeof(Sent));
    choose(messages_[static_cast<std::size_t>(node_)].bytes());
    for (int node = 0; node < nodes_; ++node) {
      const bool own = node == node_;
      round.outgoing.push_back(own ? comm::Buffer() : messages_[static_cast<std::size_t>(node_)].buffer());
      round.incoming.push_back(own ? comm::Buffer() : messages_[static_cast<std::size_t>(node)].buffer());
    }
    return round;
  }

 private:
  /// What is chosen is sent, and no error any more.
  void choose(std::span<std::byte> message) {
    for (std::size_t i = 0; i < values_.size(); ++i) error_[i] += values_[i] / samples_;
    std::size_t at = 0;
    for (const auto place : largest_places(error_, sent_)) {
      const Sent one{place, std::exchange(error_[place], 0.0F)};
      std::memcpy(message.data() + at, &one, sizeof one);
      at += sizeof one;
    }
  }

  void add_up() {
    std::ranges::fill(values_, 0.0F);
    for (const auto& message : std::as_const(messages_)) {
      const auto bytes = message.bytes();
      for (std::size_t at = 0; at < bytes.size(); at += sizeof(Sent)) {
        Sent one;
        std::memcpy(&one, bytes.data() + at, sizeof one);
        require(one.place < values_.size(), "names a value that is not there",
                {.subject = "a message of gradients"});
        values_[one.place] += one.value * samples_;
      }
    }
  }

  std::span<float> values_;
  std::span<float> error_;
  float samples_;
  std::size_t sent_;
  int node_;
  int nodes_;
  std::vector<WireMessage> messages_;  // by node
};

}  // namespace

std::vector<std::uint32_t> largest_places(std::span<const float> values, std::size_t count) {
  std::vector<std::uint32_t> places;
  count = std::min(count, values.size());
  if (count == 0) return places;
  places.reserve(count);
  const auto threshold = threshold_of(values, count);
  std::size_t equal = count - threshold.larger;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = size_bits(values[i]);
    if (bits < threshold.bits || (bits == threshold.bits && equal == 0)) continue;
    if (bits == threshold.bits) --equal;
    places.push_back(static_cast<std::uint32_t>(i));
  }
  return places;
}

std::size_t TopKEncoding::sent_of(std::size_t count) const {
  if (count == 0) return 0;
  return std::max<std::size_t>(1,
                               static_cast<std::size_t>(std::llround(share_ * static_cast<double>(count))));
}

std::unique_ptr<comm::MessageRounds> TopKEncoding::begin(std::span<float> values, std::size_t first, int node,
                                                         int nodes) {
  require(first == 0 && error_ != nullptr && values.size() <= std::numeric_limits<std::uint32_t>::max(),
          "cannot be chosen from", {.subject = "a bucket of gradients"});
  return std::make_unique<TopKSum>(values, std::span(error_, values.size()), samples_, sent_of(values.size()),
                                   node, nodes);
}

void TopKGradients::lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
                            comm::Group& group) {
  begin_errors(parameters, group);
  for (const Range& bucket : buckets) {
    encodings_.emplace_back(share_, error_at(bucket.begin), samples());
    for (const auto& entry : parameters.entries()) {
      if (entry.offset >= bucket.begin && entry.offset < bucket.end) save_error("topk_residual", entry);
    }
  }
}

}  // namespace dtrain::parallel
