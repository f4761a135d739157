#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/shards/column.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::data {

/// An array of an HDF5 file that the library itself reads, a burst at a time, when rows are asked for. For
/// arrays of so many chunks that to ask for the place of each would take a walk over all of them: the
/// library finds a single chunk through the file's own index. Slower than a FileColumn, since it takes the
/// library's lock.
class LibraryColumn final : public Column {
 public:
  /// `array` in `file` must hold `type` as it is. The caller holds the lock of `library`, which must live as
  /// long. Throws Error.
  LibraryColumn(const std::filesystem::path& file, std::string array, ElementType type,
                std::vector<std::int64_t> row_shape, std::int64_t rows, h5::Library& library);
  /// Takes the lock, for the library closes its file.
  ~LibraryColumn() override;

  void read(std::int64_t first, std::int64_t count, std::byte* out) const override;

 private:
  h5::Library& library_;
  std::string name_;  ///< `FILE:ARRAY`
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace dtrain::data
