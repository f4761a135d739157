#include "data/shards/library_column.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/handle.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kBytesAtOnce = std::size_t{4} << 20;  // the recorder waits for it

}  // namespace

struct LibraryColumn::Open {
  Open(const std::string& name, const std::string& array)
      : file(h5::open_file(name, h5::Access::read)), dataset(h5::open_dataset(file.id(), array)) {}
  h5::File file;
  h5::Dataset dataset;  // closed first
};

LibraryColumn::LibraryColumn(const std::filesystem::path& file, std::string array, ElementType type,
                             std::vector<std::int64_t> row_shape, std::int64_t rows, h5::Library& library)
    : Column(type, std::move(row_shape), rows),
      library_(library),
      name_(file.string() + ":" + array),
      open_(std::make_unique<Open>(file.string(), array)) {}

LibraryColumn::~LibraryColumn() {
  const auto lock = library_.lock();
  open_.reset();
}

void LibraryColumn::read(std::int64_t first, std::int64_t count, std::byte* out) const {
  const auto burst = static_cast<std::int64_t>(
      std::max<std::size_t>(1, kBytesAtOnce / std::max<std::size_t>(1, row_bytes())));
  h5::Shape offset(row_shape().size() + 1, 0);
  h5::Shape extent(row_shape().begin(), row_shape().end());
  extent.insert(extent.begin(), 0);
  for (std::int64_t done = 0; done < count; done += burst) {
    offset[0] = static_cast<std::uint64_t>(first + done);
    extent[0] = static_cast<std::uint64_t>(std::min(burst, count - done));
    const auto lock = library_.lock();
    try {
      h5::read_slab(open_->dataset, h5::native_type(type()), offset, extent,
                    out + static_cast<std::size_t>(done) * row_bytes());
    } catch (const Error& error) {
      throw data_error(error.problem(), name_, "take another copy of the file");
    }
  }
}

}  // namespace dtrain::data
