#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/manifest.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::checkpoint {

/// Elements of a row-major tensor at equal distances: what a rank holds of one that is cut along a dim.
struct Runs {
  std::int64_t begin = 0;   ///< First element.
  std::int64_t length = 0;  ///< Of a run.
  std::int64_t stride = 0;  ///< From run to run.
  std::int64_t count = 0;
};

/// Whether opening checks every byte of every file; the manifest is checked always.
enum class Verify { everything, manifest };

/// What is wrong with a file of a checkpoint, by its size and SHA-256: empty when nothing is.
std::string damage(const std::filesystem::path& folder, const FileEntry& entry);

/// An open checkpoint. Tensors are read whole or in part, whatever slices they were written in.
class CheckpointReader {
 public:
  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const CheckpointInfo& info() const { return manifest_.info; }

  /// Fills `out` with the whole tensor `name` (`model/NAME` or `optimizer/STATE/NAME`), row-major.
  /// Throws Error (exit code 4) when there is no such tensor, its type is not `dtype` or its size is not that
  /// of `out`.
  void read(const std::string& name, const std::string& dtype, std::span<std::byte> out) const;

  /// The same for `runs` of it, one behind the other; no more is read where the tensor lies in one piece.
  void read(const std::string& name, const std::string& dtype, const Runs& runs,
            std::span<std::byte> out) const;

 private:
  friend CheckpointReader load(const std::filesystem::path& folder, h5::Library& library, Verify verify);
  const TensorEntry& entry(const std::string& name, const std::string& dtype) const;
  CheckpointReader(std::filesystem::path folder, Manifest manifest, h5::Library& library);

  std::filesystem::path folder_;
  Manifest manifest_;
  h5::Library* library_;  // borrowed from the caller of load()
};

/// Opens a checkpoint after checking the manifest and then every byte of every file against it.
/// Throws Error (exit code 4) naming the file at fault.
CheckpointReader load(const std::filesystem::path& folder, h5::Library& library,
                      Verify verify = Verify::everything);

/// Copies `runs` of the row-major tensor `whole` to `out`.
void copy_runs(std::span<const std::byte> whole, std::size_t element_bytes, const Runs& runs,
               std::span<std::byte> out);

}  // namespace dtrain::checkpoint
