#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/shards/column.hpp"

namespace dtrain::data {

/// Rows of `row_shape` ([] for scalars) over values that the column keeps: column_from without a copy.
template <typename T>
std::shared_ptr<const Column> column_over(std::vector<T>&& values,
                                          const std::vector<std::int64_t>& row_shape) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int64_t> ||
                std::is_same_v<T, std::uint8_t>);
  constexpr ElementType kType = std::is_same_v<T, float>          ? ElementType::float32
                                : std::is_same_v<T, double>       ? ElementType::float64
                                : std::is_same_v<T, std::int64_t> ? ElementType::int64
                                                                  : ElementType::uint8;
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  const auto rows = static_cast<std::int64_t>(owner->size()) / element_count(row_shape);
  return std::make_shared<MemoryColumn>(kType, row_shape, rows,
                                        reinterpret_cast<const std::byte*>(owner->data()), owner);
}

}  // namespace dtrain::data
