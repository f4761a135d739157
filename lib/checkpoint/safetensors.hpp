#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/weights.hpp"

namespace dtrain::checkpoint {

/// A .safetensors file: 8 bytes of header length (little-endian), a JSON header with dtype, shape and
/// data_offsets of each tensor, then the data. Throws Error (exit code 4) when the header is damaged or a
/// tensor leaves the file.
std::unique_ptr<const Weights> open_safetensors(const std::filesystem::path& file);

/// `F32` and its like for `float32` and its like. Throws Error (exit code 4) for a type the format lacks.
std::string safetensors_type(const std::string& dtype);

}  // namespace dtrain::checkpoint
