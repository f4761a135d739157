#pragma once

#include <hdf5.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "h5/handle.hpp"

namespace dtrain::h5 {

/// Strings side by side as a fixed-length HDF5 type has them.
struct StringBuffer {
  std::size_t width = 1;    ///< Bytes of each; the longest one's.
  std::vector<char> bytes;  ///< [n, width], padded with zeros.
};
StringBuffer pack_strings(const std::vector<std::string>& values);

/// Reads `n` strings of the file's `type`, fixed or variable in length. `read(memory_type, buffer)` is the
/// H5Aread or H5Dread to call. Throws Error with `subject`.
std::vector<std::string> unpack_strings(const Datatype& type, const Dataspace& space, std::size_t n,
                                        const std::string& subject,
                                        const std::function<herr_t(hid_t, void*)>& read);

}  // namespace dtrain::h5
