#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/manifest.hpp"
#include "core/slice.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::checkpoint {

/// Raw memory that holds a slice of a tensor, row-major and without gaps. Borrowed.
struct TensorRef {
  Slice slice;                  ///< slice.name is PyTorch's state_dict name.
  std::string group = "model";  ///< `model`, or `optimizer/STATE` such as `optimizer/exp_avg`.
  std::string dtype = "float32";
  const void* data = nullptr;
};

/// Writes `checkpoints`/step-NNNNNNNN: aside as `.partial`, files and folders synced, then renamed, so that a
/// folder of that name is whole. An older one of the same step is replaced. Called by one rank, not
/// collective. Returns the folder. Throws Error (exit code 4), after removing what it had written, e.g. when
/// the disk is full.
std::filesystem::path save(const std::filesystem::path& checkpoints, const CheckpointInfo& info,
                           std::span<const TensorRef> tensors, h5::Library& library);

/// Points `checkpoints`/best to the folder of `step`, in one rename. Throws Error (exit code 4).
void mark_best(const std::filesystem::path& checkpoints, std::int64_t step);

}  // namespace dtrain::checkpoint
