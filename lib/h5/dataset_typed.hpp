#pragma once

// The typed halves of h5/dataset.hpp; include that.

#include "h5/dataset.hpp"

namespace dtrain::h5 {

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
