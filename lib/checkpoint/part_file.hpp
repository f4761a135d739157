#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"

namespace dtrain::checkpoint {

/// Where a file has each of `tensors`: `GROUP/NAME`; further slices of the same tensor at
/// `GROUP/NAME.slice-00001` and so on.
std::vector<std::string> datasets_of(std::span<const TensorRef> tensors);

/// Writes one HDF5 file with a dataset for each tensor, named by datasets_of(), contiguous, with the
/// attributes global_shape and offset, and syncs it. HDF5 only lays the file out; the data goes past it, so
/// that its lock is held for moments. Throws Error (exit code 4).
void write_part(const std::filesystem::path& file, std::span<const TensorRef> tensors, h5::Library& library);

/// Fills `out` with the slice `dataset` (a path in the file), whose shape must be `shape`.
/// Throws Error (exit code 4).
void read_part(const std::filesystem::path& file, const std::string& dataset, const std::string& dtype,
               const std::vector<std::int64_t>& shape, std::span<std::byte> out, h5::Library& library);
/// The same with `runs` of it only.
void read_part(const std::filesystem::path& file, const std::string& dataset, const std::string& dtype,
               const std::vector<std::int64_t>& shape, const Runs& runs, std::span<std::byte> out,
               h5::Library& library);

}  // namespace dtrain::checkpoint
