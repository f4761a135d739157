#pragma once

#include <concepts>
#include <cstring>
#include <string_view>
#include <utility>

#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

/// Puts numbers, little-endian, and bytes behind one another.
class Writer {
 public:
  template <std::unsigned_integral Number>
  void integer(Number value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  void bytes(View more) { written_.insert(written_.end(), more.begin(), more.end()); }
  void text(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
  const Bytes& written() const { return written_; }
  Bytes take() { return std::move(written_); }

 private:
  Bytes written_;
};

/// Takes them out again. Past the end it gives zeros, and ended() is false from then on.
class Reader {
 public:
  explicit Reader(View bytes) : left_(bytes) {}
  template <std::unsigned_integral Number>
  Number integer() {
    Number value = 0;
    const auto from = bytes(sizeof(value));
    if (from.size() == sizeof(value)) std::memcpy(&value, from.data(), sizeof(value));
    return value;
  }
  template <std::size_t count>
  Block<count> block() {
    Block<count> value = {};
    const auto from = bytes(count);
    if (from.size() == count) std::memcpy(value.data(), from.data(), count);
    return value;
  }
  /// Empty where fewer are left.
  View bytes(std::size_t count) {
    if (count > left_.size()) {
      short_ = true;
      left_ = {};
      return {};
    }
    const auto taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  std::size_t left() const { return left_.size(); }
  /// Whether all that was there has been taken, and no more.
  bool ended() const { return !short_ && left_.empty(); }

 private:
  View left_;
  bool short_ = false;
};

}  // namespace dtrain::secure_aggregation
