#pragma once

#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// A checkpoint that several ranks write, each its own part: aside as `checkpoints`/step-NNNNNNNN.partial,
/// files and folders synced, then renamed, so that a folder without that ending is whole. In order: begin()
/// on one rank, write_part() on each writer, commit() on one rank with what the writers returned; the
/// callers see to it that these meet. An older checkpoint of the same step is replaced. All throw Error (exit
/// code 4), e.g. when the disk is full.
class Saving {
 public:
  Saving(const std::filesystem::path& checkpoints, std::int64_t step);

  void begin() const;
  /// Writes the writer's tensors as part-NNNNN.h5 and returns their entries of the manifest as text.
  std::string write_part(int writer, std::span<const TensorRef> tensors, h5::Library& library) const;
  /// The same for writers that have no other word of each other than the folder itself: leaves the entries,
  /// or why there are none, beside the part. Throws nothing.
  void leave_part(int writer, std::span<const TensorRef> tensors, h5::Library& library) const noexcept;
  /// What these writers left, as soon as all have. Throws Error when one failed, when one has not got on for
  /// `silence_s` seconds, neither writing its part nor hashing it, or when `given_up` becomes true.
  std::vector<std::string> await_parts(std::span<const int> writers, double silence_s,
                                       const std::atomic<bool>& given_up = kNotGivenUp) const;
  /// Whether it has begun and is neither whole nor abandoned, as far as this rank sees.
  bool is_open() const noexcept;
  /// Makes the checkpoint whole and returns its folder; the caller points `last` to it by mark(), which may
  /// fail while the checkpoint is there. `parts`: of all writers.
  std::filesystem::path commit(const CheckpointInfo& info, std::span<const std::string> parts) const;
  /// Removes what has been written.
  void abandon() const noexcept;

 private:
  static constexpr std::atomic<bool> kNotGivenUp{false};
  std::filesystem::path part_of(int writer) const;
  std::filesystem::path word_of(int writer, std::string_view ending) const;

  std::filesystem::path target_;
  std::filesystem::path partial_;
};

/// The same with one writer; points `last` to it. Not collective. Removes what it had written when it throws.
std::filesystem::path save(const std::filesystem::path& checkpoints, const CheckpointInfo& info,
                           std::span<const TensorRef> tensors, h5::Library& library);

/// SHA-256 of a part that is whole. Renews the time of the file every few seconds while it reads: reading a
/// large part from a slow disk takes minutes, and Saving::await_parts() must see that the writer gets on.
/// Throws Error (exit code 4).
std::string hash_of_part(const std::filesystem::path& part);

/// Removes the oldest checkpoints but the newest `keep` and the one that `best` points to; of damaged ones
/// (step-NNNNNNNN.damaged) the newest stays, of those that were never finished none: no rank may be writing
/// one. Throws Error (exit code 4).
void remove_old(const std::filesystem::path& checkpoints, int keep);

/// The checkpoints' folders step-NNNNNNNN, newest first. Empty where there is no such folder.
std::vector<std::filesystem::path> list(const std::filesystem::path& checkpoints);

/// The step of a checkpoint's folder, by its name; 0 for another name.
std::int64_t step_of(const std::filesystem::path& folder);

// Links in the folder of the checkpoints.
inline constexpr std::string_view kBest = "best";  ///< To the one with the best validation.
inline constexpr std::string_view kLast = "last";  ///< To the newest.

/// Throws Error (exit code 4) where a folder is in the place of a link, which no link can replace.
void check_links(const std::filesystem::path& checkpoints);

/// Points `checkpoints`/`link` to the folder of `step`, in one rename. Throws Error (exit code 4).
void mark(const std::filesystem::path& checkpoints, std::string_view link, std::int64_t step);

}  // namespace dtrain::checkpoint
