#include "record/table_file.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/types.hpp"

namespace dtrain::record {
namespace {

h5::Datatype field_type(const Column& column) {
  switch (column.kind) {
    case ColumnKind::integer:
      return h5::file_type(h5::ElementType::int64);
    case ColumnKind::real:
      return h5::file_type(h5::ElementType::float64);
    case ColumnKind::text:
      break;
  }
  return h5::string_type(column.bytes);
}

// Fields where they lie in the struct.
h5::Datatype memory_type(const std::vector<Column>& columns, std::size_t row_bytes) {
  h5::Datatype type(h5::check_id(H5Tcreate(H5T_COMPOUND, row_bytes), "HDF5 refuses a row type", ""));
  for (const Column& column : columns) {
    h5::check(H5Tinsert(type.id(), column.name.c_str(), column.offset, field_type(column).id()),
              "HDF5 refuses a column", column.name);
  }
  return type;
}

// The same without the gaps between them.
h5::Datatype packed(const h5::Datatype& memory) {
  h5::Datatype type(h5::check_id(H5Tcopy(memory.id()), "HDF5 cannot copy a type", ""));
  h5::check(H5Tpack(type.id()), "HDF5 cannot pack a row type", "");
  return type;
}

struct Field {
  std::string name;
  std::size_t offset;
  std::size_t bytes;
  bool is_text;
};

// How a row of the file comes into memory: numbers as float64, text as fixed-length strings.
struct ReadPlan {
  std::vector<Field> fields;
  h5::Datatype type;
  std::size_t row_bytes = 0;
};

ReadPlan plan_reading(const h5::Dataset& dataset) {
  const h5::Datatype in_file(h5::check_id(H5Dget_type(dataset.id()), "has no type", dataset.id()));
  if (h5::element_type(in_file.id()) != h5::ElementType::compound) {
    throw Error("is not a table", {.subject = h5::describe(dataset.id())});
  }
  ReadPlan plan;
  std::vector<h5::Datatype> types;
  const int fields = H5Tget_nmembers(in_file.id());
  for (unsigned i = 0; i < static_cast<unsigned>(fields); ++i) {
    const h5::Datatype field(
        h5::check_id(H5Tget_member_type(in_file.id(), i), "has a broken field", dataset.id()));
    const bool is_text = h5::element_type(field.id()) == h5::ElementType::string;
    if (is_text && H5Tis_variable_str(field.id()) > 0) continue;  // dtrain writes none
    char* name = H5Tget_member_name(in_file.id(), i);
    const std::size_t bytes = is_text ? H5Tget_size(field.id()) : sizeof(double);
    plan.fields.push_back({name, plan.row_bytes, bytes, is_text});
    H5free_memory(name);
    types.push_back(is_text ? h5::string_type(bytes) : h5::file_type(h5::ElementType::float64));
    plan.row_bytes += bytes;
  }
  plan.type = h5::Datatype(h5::check_id(H5Tcreate(H5T_COMPOUND, std::max<std::size_t>(plan.row_bytes, 1)),
                                        "HDF5 refuses a row type", ""));
  for (std::size_t i = 0; i < types.size(); ++i) {
    const Field& field = plan.fields[i];
    h5::check(H5Tinsert(plan.type.id(), field.name.c_str(), field.offset, types[i].id()),
              "HDF5 refuses a column", field.name);
  }
  return plan;
}

constexpr std::uint64_t kAlwaysAllowed = std::uint64_t{16} << 20;

std::uint64_t bytes_of_file(const h5::Dataset& dataset) {
  const h5::File file(h5::check_id(H5Iget_file_id(dataset.id()), "has no file", dataset.id()));
  return h5::file_bytes(file);
}

/// dtrain writes tables uncompressed: one larger than its file is none of ours, and would take the memory.
void require_rows(const h5::Dataset& dataset, std::uint64_t rows, std::size_t row_bytes) {
  const std::uint64_t most = std::max(kAlwaysAllowed, bytes_of_file(dataset));
  if (row_bytes > 0 && rows > most / row_bytes)
    throw Error("says that it has more rows than its file holds", {.subject = h5::describe(dataset.id())});
}

}  // namespace

TableFile::TableFile(hid_t location, const std::string& path, const std::vector<Column>& columns,
                     std::size_t row_bytes, std::uint64_t chunk_rows) {
  const h5::SilentErrors silent;
  memory_type_ = memory_type(columns, row_bytes);
  dataset_ = h5::create_chunked(location, path, packed(memory_type_).id(), {0},
                                {.chunk = {chunk_rows}, .extent = h5::Extent::extendible});
  std::vector<std::string> units;
  for (const Column& column : columns) units.push_back(column.units);
  h5::write_attribute(dataset_.id(), "units", units);
}

void TableFile::append(const void* rows, std::size_t count) {
  if (count == 0) return;
  h5::set_rows(dataset_, rows_ + count);
  h5::write_slab(dataset_, memory_type_.id(), {rows_}, {count}, rows);
  rows_ += count;
}

std::size_t count_rows(hid_t location, const std::string& path) {
  const h5::SilentErrors silent;
  const h5::Dataset dataset = h5::open_dataset(location, path);
  const auto info = h5::info(dataset);
  if (info.shape.size() != 1) throw Error("is not a list of rows", {.subject = path});
  require_rows(dataset, info.shape[0], info.element_bytes);
  return info.shape[0];
}

void read_rows_into(hid_t location, const std::string& path, const std::vector<Column>& columns,
                    std::size_t row_bytes, std::size_t count, void* rows) {
  if (count == 0) return;
  const h5::SilentErrors silent;
  const h5::Dataset dataset = h5::open_dataset(location, path);
  h5::read_slab(dataset, memory_type(columns, row_bytes).id(), {0}, {count}, rows);
}

Table read_table(hid_t location, const std::string& path, std::size_t most_rows) {
  const h5::SilentErrors silent;
  const h5::Dataset dataset = h5::open_dataset(location, path);
  h5::require_own_bytes(location, dataset);
  const ReadPlan plan = plan_reading(dataset);
  const h5::Shape shape = h5::info(dataset).shape;
  if (shape.size() != 1) throw Error("is not a list of rows", {.subject = h5::describe(dataset.id())});
  require_rows(dataset, shape[0], plan.row_bytes);
  Table table;
  table.rows = std::min<std::size_t>(shape[0], most_rows);
  std::vector<char> bytes(table.rows * plan.row_bytes);
  if (table.rows > 0)
    h5::read_slab(dataset, plan.type.id(), {shape[0] - table.rows}, {table.rows}, bytes.data());
  for (const Field& field : plan.fields) {
    table.order.push_back(field.name);
    for (std::size_t row = 0; row < table.rows; ++row) {
      const char* at = bytes.data() + row * plan.row_bytes + field.offset;
      if (field.is_text) {
        table.texts[field.name].push_back(printable({at, strnlen(at, field.bytes)}, 4 * field.bytes));
      } else {
        double value = 0;
        std::memcpy(&value, at, sizeof value);
        table.numbers[field.name].push_back(value);
      }
    }
    if (table.rows == 0) {  // the column exists all the same
      if (field.is_text)
        table.texts[field.name];
      else
        table.numbers[field.name];
    }
  }
  if (h5::has_attribute(dataset.id(), "units"))
    table.units = h5::read_strings_attribute(dataset.id(), "units");
  table.units.resize(table.order.size());
  return table;
}

const std::vector<double>& Table::column(const std::string& name) const {
  const auto found = numbers.find(name);
  if (found == numbers.end()) throw Error("has no column " + name, {.subject = "results.h5"});
  return found->second;
}

double Table::value(const std::string& name, std::size_t row) const {
  return has(name) ? column(name)[row] : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace dtrain::record
