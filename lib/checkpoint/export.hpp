#pragma once

#include <filesystem>

#include "checkpoint/reader.hpp"

namespace dtrain::checkpoint {

/// Writes the model's whole tensors, under PyTorch's names, into one file: `/model/NAME` of an .h5, or a
/// .safetensors. What the file held before is replaced only when the new one is whole.
/// Throws Error: exit code 2 for another ending, 4 when writing fails.
/// Source: the safetensors format (8 bytes of header length, little-endian, JSON header, data).
void export_model(const CheckpointReader& checkpoint, const std::filesystem::path& out, h5::Library& library);

}  // namespace dtrain::checkpoint
