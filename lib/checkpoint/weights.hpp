#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/reader.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::checkpoint {

/// A whole tensor of a model.
struct WeightEntry {
  std::string name;   ///< PyTorch's state_dict name.
  std::string dtype;  ///< `float32`, `float64`, `float16`, `bfloat16`, `int64`, ...
  std::vector<std::int64_t> shape;

  std::int64_t bytes() const;
};

/// A model's tensors under PyTorch's names, wherever they lie.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual const std::vector<WeightEntry>& entries() const = 0;
  /// Fills `out` [entry.bytes()], row-major; `entry` is one of entries(). Throws Error (exit code 4).
  virtual void read(const WeightEntry& entry, std::span<std::byte> out) const = 0;
  /// The same with `runs` of it only, one behind the other.
  virtual void read(const WeightEntry& entry, const Runs& runs, std::span<std::byte> out) const;

  /// Of the text they were trained on. Only checkpoints keep it: the writer of a file of weights answers for
  /// their rows.
  virtual VocabularyHashes vocabulary() const { return {}; }

  /// Null when there is none of that name.
  const WeightEntry* find(const std::string& name) const;
};

/// Opens a checkpoint's folder (verified, see Verify), an .h5 with `/model/NAME`, or a .safetensors.
/// `library` must outlive what it returns. Throws Error: exit code 4 for a missing or damaged file, 2 for
/// another ending. Source: the safetensors format (8 bytes of header length, little-endian, JSON header,
/// data).
std::unique_ptr<const Weights> open_weights(const std::filesystem::path& path, h5::Library& library,
                                            Verify verify = Verify::everything);

}  // namespace dtrain::checkpoint
