#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "h5/handle.hpp"
#include "record/rows.hpp"
#include "record/run_reader.hpp"

namespace dtrain::record {

/// A 1-D chunked compound dataset with an attribute `units`, that rows are appended to. The caller holds the
/// library's lock for every call, the destructor included.
class TableFile {
 public:
  /// Makes the dataset, without rows. `row_bytes` is the distance between two rows in memory.
  TableFile(hid_t location, const std::string& path, const std::vector<Column>& columns,
            std::size_t row_bytes, std::uint64_t chunk_rows);

  /// Appends `count` rows that lie `row_bytes` apart. Throws Error.
  void append(const void* rows, std::size_t count);

 private:
  h5::Datatype memory_type_;
  h5::Dataset dataset_;
  std::uint64_t rows_ = 0;
};

template <class Row>
TableFile make_table(hid_t location, const std::string& path, std::uint64_t chunk_rows) {
  return TableFile(location, path, columns_of<Row>(), sizeof(Row), chunk_rows);
}

/// Reads all rows into memory that lies as `columns` say. Throws Error.
std::size_t count_rows(hid_t location, const std::string& path);
void read_rows_into(hid_t location, const std::string& path, const std::vector<Column>& columns,
                    std::size_t row_bytes, std::size_t count, void* rows);

/// All rows of a dataset that make_table<Row>() made; other columns are left out. Throws Error.
template <class Row>
std::vector<Row> read_rows(hid_t location, const std::string& path) {
  std::vector<Row> rows(count_rows(location, path));
  read_rows_into(location, path, columns_of<Row>(), sizeof(Row), rows.size(), rows.data());
  return rows;
}

/// The rows of any compound dataset with number and string fields, all or the last `most_rows`. Throws Error.
Table read_table(hid_t location, const std::string& path,
                 std::size_t most_rows = std::numeric_limits<std::size_t>::max());

}  // namespace dtrain::record
