#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/shards/array.hpp"

namespace dtrain::data {

/// Rows of one size and type, wherever they lie: an array of a shard, of an original file, or in memory.
class Column {
 public:
  Column(ElementType type, std::vector<std::int64_t> row_shape, std::int64_t rows);
  virtual ~Column() = default;

  ElementType type() const { return type_; }
  const std::vector<std::int64_t>& row_shape() const { return row_shape_; }  ///< Without the dim of the rows.
  std::int64_t rows() const { return rows_; }
  std::size_t row_bytes() const { return row_bytes_; }

  /// Copies rows [first, first + count), which must exist. Thread-safe. Throws data_error.
  virtual void read(std::int64_t first, std::int64_t count, std::byte* out) const = 0;

  /// Reads and verifies what is to be kept in memory; nothing for columns that keep nothing. Throws
  /// data_error.
  virtual void load() const {}

  /// Copies the given rows, one after another. Thread-safe. Throws data_error.
  virtual void gather(std::span<const std::int64_t> rows, std::byte* out) const;

 private:
  ElementType type_;
  std::vector<std::int64_t> row_shape_;
  std::int64_t rows_;
  std::size_t row_bytes_;
};

/// Rows in memory; `owner` keeps them alive.
class MemoryColumn final : public Column {
 public:
  MemoryColumn(ElementType type, std::vector<std::int64_t> row_shape, std::int64_t rows,
               const std::byte* data, std::shared_ptr<const void> owner);

  /// Takes an array [rows, ...].
  static std::shared_ptr<const Column> of(HostArray array);

  void read(std::int64_t first, std::int64_t count, std::byte* out) const override;
  void gather(std::span<const std::int64_t> rows, std::byte* out) const override;

 private:
  const std::byte* data_;
  std::shared_ptr<const void> owner_;
};

/// Columns of the same type and row shape, one after another: the shards of a split.
class JoinedColumn final : public Column {
 public:
  /// A single column is handed back as it is. At least one.
  static std::shared_ptr<const Column> of(std::vector<std::shared_ptr<const Column>> parts);

  explicit JoinedColumn(std::vector<std::shared_ptr<const Column>> parts);
  void read(std::int64_t first, std::int64_t count, std::byte* out) const override;
  void gather(std::span<const std::int64_t> rows, std::byte* out) const override;

 private:
  std::size_t part_holding(std::int64_t row) const;
  std::vector<std::shared_ptr<const Column>> parts_;
  std::vector<std::int64_t> begins_;  // first row of each part
};

/// All rows as a vector; T must be the C++ type of column.type() and rows hold `row_bytes() / sizeof(T)`
/// each.
template <typename T>
std::vector<T> read_whole(const Column& column) {
  std::vector<T> values(static_cast<std::size_t>(column.rows()) * column.row_bytes() / sizeof(T));
  column.read(0, column.rows(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

/// Rows of `row_shape` ([] for scalars) in memory, from float, std::int32_t or std::int64_t values.
template <typename T>
std::shared_ptr<const Column> column_from(const std::vector<T>& values,
                                          const std::vector<std::int64_t>& row_shape) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, std::int32_t> ||
                std::is_same_v<T, std::int64_t>);
  constexpr ElementType kType = std::is_same_v<T, float>          ? ElementType::float32
                                : std::is_same_v<T, std::int32_t> ? ElementType::int32
                                                                  : ElementType::int64;
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(values.size()) / element_count(row_shape)};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  HostArray array;
  array.reset(kType, shape);
  std::copy(values.begin(), values.end(), array.as<T>().begin());
  return MemoryColumn::of(std::move(array));
}

}  // namespace dtrain::data
