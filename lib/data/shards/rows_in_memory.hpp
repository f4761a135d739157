#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace dtrain::data {

/// Asks the processor for a row that will be copied soon. Rows drawn at random miss every cache, and a copy
/// of a few lines is over before the hardware sees a pattern: asked for two rows ahead, they arrive side by
/// side.
inline void prefetch_row(const std::byte* row, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kMost = 4096;  // beyond that the hardware follows by itself
  for (std::size_t at = 0; at < bytes && at < kMost; at += kLine) __builtin_prefetch(row + at);
}

/// Copies rows of `bytes` bytes each, wherever place(row) says they lie, one after another to `out`.
template <typename Place>
void copy_rows(std::span<const std::int64_t> rows, std::size_t bytes, std::byte* out, Place place) {
  constexpr std::size_t kAhead = 4;
  for (std::size_t i = 0; i < rows.size() && i < kAhead; ++i) prefetch_row(place(rows[i]), bytes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) prefetch_row(place(rows[i + kAhead]), bytes);
    std::memcpy(out, place(rows[i]), bytes);
    out += bytes;
  }
}

}  // namespace dtrain::data
