#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/array.hpp"

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

}  // namespace dtrain::data
