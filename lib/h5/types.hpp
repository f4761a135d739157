#pragma once

#include <hdf5.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/element_type.hpp"
#include "h5/handle.hpp"

namespace dtrain::h5 {

using dtrain::element_bytes;
using dtrain::element_name;
using dtrain::ElementType;

/// The type in memory, owned by HDF5: not to be closed. Throws Error for float16, bfloat16, string, compound,
/// other.
hid_t native_type(ElementType type);

/// The little-endian type in files (float16: IEEE half).
Datatype file_type(ElementType type);

/// A fixed-length UTF-8 string of `bytes` bytes, padded with zeros.
Datatype string_type(std::size_t bytes);

/// Of an HDF5 type that exists; h5py's booleans are uint8.
ElementType element_type(hid_t type);

/// Whether the bits of all its numbers lie within their bytes, and all members within their whole. HDF5 1.10
/// does not look at what a file says of that, and would read and write beyond its buffers.
bool is_sound(hid_t type);

/// ElementType of a C++ type.
template <class T>
constexpr ElementType element_of() {
  if constexpr (std::same_as<T, std::int8_t>)
    return ElementType::int8;
  else if constexpr (std::same_as<T, std::uint8_t> || std::same_as<T, std::byte>)
    return ElementType::uint8;
  else if constexpr (std::same_as<T, std::int16_t>)
    return ElementType::int16;
  else if constexpr (std::same_as<T, std::uint16_t>)
    return ElementType::uint16;
  else if constexpr (std::same_as<T, std::int32_t>)
    return ElementType::int32;
  else if constexpr (std::same_as<T, std::uint32_t>)
    return ElementType::uint32;
  else if constexpr (std::same_as<T, std::int64_t>)
    return ElementType::int64;
  else if constexpr (std::same_as<T, std::uint64_t>)
    return ElementType::uint64;
  else if constexpr (std::same_as<T, float>)
    return ElementType::float32;
  else {
    static_assert(std::same_as<T, double>, "no HDF5 type for this C++ type");
    return ElementType::float64;
  }
}

}  // namespace dtrain::h5
