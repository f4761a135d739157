#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::data {

/// HDF5's Fletcher-32 of `bytes`, as its filter appends it (little-endian) to each chunk: big-endian 16-bit
/// words, an odd last byte in the upper half, sums modulo 65535 represented as 1..65535 unless all words are
/// 0. Source: HDF5 file format specification, "Fletcher32 filter"; Fletcher, IEEE Trans. Comm. 30 (1982).
std::uint32_t fletcher32(std::span<const std::byte> bytes);

}  // namespace dtrain::data
