#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "h5/handle.hpp"
#include "h5/types.hpp"

namespace dtrain::h5 {

using Shape = std::vector<std::uint64_t>;  ///< Elements along each dim; empty for a scalar.

enum class Checksum { none, fletcher32 };
enum class Extent { fixed, extendible };  ///< extendible: dim 0 may grow without limit.

/// How a chunked dataset is cut and stored.
struct Chunking {
  Shape chunk;  ///< Elements along each dim; as long as the shape.
  Checksum checksum = Checksum::none;
  Extent extent = Extent::fixed;
  int deflate = 0;  ///< gzip level; 0 for none.
};

/// What a dataset is, without reading it.
struct DatasetInfo {
  Shape shape;
  Shape chunk;  ///< Empty when contiguous or compact.
  ElementType type = ElementType::other;
  std::size_t element_bytes = 0;  ///< In the file.
  bool fletcher32 = false;
  bool other_filters = false;  ///< Compressed or filtered in a way that raw bytes do not show.
  bool contiguous = false;
  bool little_endian = true;  ///< Of numbers; raw bytes can be used as they are.
};

/// One stored chunk: where its bytes lie in the file.
struct ChunkPlace {
  Shape offset;  ///< Its first element along each dim.
  std::uint64_t file_offset = 0;
  std::uint64_t bytes = 0;        ///< Stored bytes; 4 more than the data under Fletcher-32.
  std::uint32_t filter_mask = 0;  ///< Bit i set: filter i was left out for this chunk.
};

/// `type` is an HDF5 type in the file, e.g. file_type(ElementType::uint8).id(). Groups above are made.
Dataset create_chunked(hid_t location, const std::string& path, hid_t type, const Shape& shape,
                       const Chunking& how);

/// Contiguous, allocated now and not filled, so that file_offset() is known and pwrite can fill it.
Dataset create_contiguous(hid_t location, const std::string& path, hid_t type, const Shape& shape);

Dataset open_dataset(hid_t location, const std::string& path);

DatasetInfo info(const Dataset& dataset);

/// Throws Error where the bytes of `dataset`, opened from `location`, lie in another file: behind an external
/// link, in external storage, or in another file's datasets that it is made of.
void require_own_bytes(hid_t location, const Dataset& dataset);

/// Bytes that its chunks, or its one piece, take in the file.
std::uint64_t stored_bytes(const Dataset& dataset);

/// Where a contiguous dataset's bytes begin in the file. Throws Error for other layouts or an empty dataset.
std::uint64_t file_offset(const Dataset& dataset);

/// All stored chunks of a chunked dataset, in the order of their offsets.
std::vector<ChunkPlace> chunk_places(const Dataset& dataset);

/// Makes dim 0 of an extendible dataset `rows` long.
void set_rows(const Dataset& dataset, std::uint64_t rows);

/// Writes or reads the hyperslab [offset, offset + extent) as `memory_type`; HDF5 converts. `values` holds
/// product(extent) elements. A slab without elements does nothing.
void write_slab(const Dataset& dataset, hid_t memory_type, const Shape& offset, const Shape& extent,
                const void* values);
void read_slab(const Dataset& dataset, hid_t memory_type, const Shape& offset, const Shape& extent,
               void* values);

/// The same, typed. Throws Error unless values.size() is product(extent).
template <class T>
void write_slab(const Dataset& dataset, const Shape& offset, const Shape& extent, std::span<const T> values);
template <class T>
void read_slab(const Dataset& dataset, const Shape& offset, const Shape& extent, std::span<T> values);

/// All elements, in row-major order.
template <class T>
std::vector<T> read_all(const Dataset& dataset);

/// A whole new contiguous dataset from values.
template <class T>
void write_dataset(hid_t location, const std::string& path, const Shape& shape, std::span<const T> values);

/// 1-D datasets of strings; written fixed-length, read in either form.
void write_strings(hid_t location, const std::string& path, const std::vector<std::string>& values);
std::vector<std::string> read_strings(const Dataset& dataset);

/// product(shape); 1 for a scalar.
std::uint64_t element_count(const Shape& shape);

/// What the typed functions throw when values and extent differ.
Error slab_mismatch(const Dataset& dataset);

template <class T>
void write_slab(const Dataset& dataset, const Shape& offset, const Shape& extent, std::span<const T> values) {
  if (values.size() != element_count(extent)) throw slab_mismatch(dataset);
  write_slab(dataset, native_type(element_of<T>()), offset, extent, values.data());
}

template <class T>
void read_slab(const Dataset& dataset, const Shape& offset, const Shape& extent, std::span<T> values) {
  if (values.size() != element_count(extent)) throw slab_mismatch(dataset);
  read_slab(dataset, native_type(element_of<T>()), offset, extent, values.data());
}

template <class T>
std::vector<T> read_all(const Dataset& dataset) {
  const Shape shape = info(dataset).shape;
  std::vector<T> values(element_count(shape));
  read_slab<T>(dataset, Shape(shape.size(), 0), shape, values);
  return values;
}

template <class T>
void write_dataset(hid_t location, const std::string& path, const Shape& shape, std::span<const T> values) {
  const Datatype type = file_type(element_of<T>());
  const Dataset dataset = create_contiguous(location, path, type.id(), shape);
  write_slab<T>(dataset, Shape(shape.size(), 0), shape, values);
}

}  // namespace dtrain::h5
