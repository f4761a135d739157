#include "checkpoint/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/part_file.hpp"
#include "core/error.hpp"
#include "core/sha256.hpp"
#include "core/slice.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr const char* kLoadAnother = "take another checkpoint";

/// Where a file has a slice of the tensor `name`.
const std::string& dataset_of(const SliceEntry& slice, const std::string& name) {
  return slice.dataset.empty() ? name : slice.dataset;
}

/// Copies a slice, row by row of its last dim, to its place in the whole tensor.
void scatter(const Slice& slice, std::span<const std::byte> from, std::size_t item_bytes,
             std::span<std::byte> to) {
  const std::size_t dims = slice.extent.size();
  const std::size_t row_bytes = static_cast<std::size_t>(slice.extent.back()) * item_bytes;
  std::vector<std::int64_t> index(dims, 0);
  for (std::size_t at = 0; at < from.size(); at += row_bytes) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < dims; ++d) place = place * slice.global_shape[d] + slice.offset[d] + index[d];
    std::copy_n(from.data() + at, row_bytes, to.data() + static_cast<std::size_t>(place) * item_bytes);
    for (std::size_t d = dims - 1; d-- > 0;) {  // the next row; the last dim stays 0
      if (++index[d] < slice.extent[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

std::string damage(const std::filesystem::path& folder, const FileEntry& entry) {
  const auto path = folder / entry.file;
  std::error_code error;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) return "is missing";
  if (bytes != entry.bytes) return fmt::format("is damaged: {} bytes instead of {}", bytes, entry.bytes);
  if (sha256_of_file(path, ExitCode::checkpoint) == entry.sha256) return {};
  return "is damaged: its SHA-256 is not that of the manifest";
}

void copy_runs(std::span<const std::byte> whole, std::size_t element_bytes, const Runs& runs,
               std::span<std::byte> out) {
  const auto bytes = static_cast<std::size_t>(runs.length) * element_bytes;
  for (std::int64_t i = 0; i < runs.count; ++i) {
    const auto from = static_cast<std::size_t>(runs.begin + i * runs.stride) * element_bytes;
    std::ranges::copy(whole.subspan(from, bytes), out.begin() + static_cast<std::ptrdiff_t>(i * bytes));
  }
}

CheckpointReader::CheckpointReader(std::filesystem::path folder, Manifest manifest, h5::Library& library)
    : folder_(std::move(folder)), manifest_(std::move(manifest)), library_(&library) {}

const TensorEntry& CheckpointReader::entry(const std::string& name, const std::string& dtype) const {
  const TensorEntry* tensor = manifest_.find(name);
  const std::string subject = folder_.string() + ":" + name;
  if (tensor == nullptr) throw checkpoint_error("there is no such tensor", subject, kLoadAnother);
  if (tensor->dtype == dtype) return *tensor;
  throw checkpoint_error(fmt::format("holds {}, not {}", tensor->dtype, dtype), subject,
                         "take a checkpoint of this model and precision");
}

void CheckpointReader::read(const std::string& name, const std::string& dtype, const Runs& runs,
                            std::span<std::byte> out) const {
  const TensorEntry& tensor = entry(name, dtype);
  const auto item_bytes = static_cast<std::size_t>(element_bytes(dtype));
  const bool in_one_piece = tensor.slices.size() == 1 && tensor.slices[0].shape == tensor.shape;
  if (in_one_piece) {
    const SliceEntry& whole = tensor.slices[0];
    return read_part(folder_ / whole.file, dataset_of(whole, name), dtype, tensor.shape, runs, out,
                     *library_);
  }
  std::vector<std::byte> whole(static_cast<std::size_t>(tensor.bytes()));
  read(name, dtype, whole);
  copy_runs(whole, item_bytes, runs, out);
}

void CheckpointReader::read(const std::string& name, const std::string& dtype,
                            std::span<std::byte> out) const {
  const TensorEntry& tensor = entry(name, dtype);
  const std::string subject = folder_.string() + ":" + name;
  if (tensor.bytes() != static_cast<std::int64_t>(out.size())) {
    throw checkpoint_error(fmt::format("holds {} bytes, not {}", tensor.bytes(), out.size()), subject,
                           "take a checkpoint of this model and precision");
  }
  const auto item_bytes = static_cast<std::size_t>(element_bytes(dtype));
  std::size_t filled = 0;
  for (const SliceEntry& entry : tensor.slices) {
    const Slice slice{
        .name = name, .global_shape = tensor.shape, .offset = entry.offset, .extent = entry.shape};
    slice.validate();
    const std::size_t bytes = static_cast<std::size_t>(slice.count()) * item_bytes;
    filled += bytes;
    const std::string& dataset = dataset_of(entry, name);
    if (slice.is_whole()) {
      read_part(folder_ / entry.file, dataset, dtype, entry.shape, out, *library_);
      continue;
    }
    std::vector<std::byte> part(bytes);
    read_part(folder_ / entry.file, dataset, dtype, entry.shape, part, *library_);
    scatter(slice, part, item_bytes, out);
  }
  if (filled != out.size()) throw checkpoint_error("its slices do not cover it once", subject, kLoadAnother);
}

CheckpointReader load(const std::filesystem::path& folder, h5::Library& library, Verify verify) {
  Manifest manifest = read_manifest(folder);
  for (const FileEntry& file : manifest.files) {
    if (verify == Verify::manifest) break;
    const std::string problem = damage(folder, file);
    if (!problem.empty()) throw checkpoint_error(problem, (folder / file.file).string(), kLoadAnother);
  }
  return {folder, std::move(manifest), library};
}

}  // namespace dtrain::checkpoint
