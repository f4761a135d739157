#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/manifest.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::checkpoint {

/// A verified checkpoint. Tensors are read whole, whatever slices they were written in.
class CheckpointReader {
 public:
  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const CheckpointInfo& info() const { return manifest_.info; }

  /// Fills `out` with the whole tensor `name` (`model/NAME` or `optimizer/STATE/NAME`), row-major.
  /// Throws Error (exit code 4) when there is no such tensor, its type is not `dtype` or its size is not that
  /// of `out`.
  void read(const std::string& name, const std::string& dtype, std::span<std::byte> out) const;

 private:
  friend CheckpointReader load(const std::filesystem::path& folder, h5::Library& library);
  CheckpointReader(std::filesystem::path folder, Manifest manifest, h5::Library& library);

  std::filesystem::path folder_;
  Manifest manifest_;
  h5::Library* library_;  // borrowed from the caller of load()
};

/// Opens a checkpoint after checking the manifest and then every byte of every file against it.
/// Throws Error (exit code 4) naming the file at fault.
CheckpointReader load(const std::filesystem::path& folder, h5::Library& library);

}  // namespace dtrain::checkpoint
