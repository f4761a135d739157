#pragma once

#include <algorithm>
#include <vector>

#include "data/shards/column.hpp"

namespace dtrain::fuzz {

/// Reads the first rows of a column and its last one.
inline void read_some(const data::Column& column) {
  constexpr std::int64_t kRows = 16;
  const std::int64_t rows = std::min(kRows, column.rows());
  if (rows == 0) return;  // whatever its rows would be
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * column.row_bytes());
  column.read(0, rows, bytes.data());
  column.read(column.rows() - 1, 1, bytes.data());
}

}  // namespace dtrain::fuzz
