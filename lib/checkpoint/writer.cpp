#include "checkpoint/writer.hpp"

#include <system_error>

#include "checkpoint/file_io.hpp"
#include "checkpoint/part_file.hpp"
#include "checkpoint/sha256.hpp"
#include "core/error.hpp"

namespace dtrain::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPart = "part-00000.h5";

Manifest describe(const CheckpointInfo& info, std::span<const TensorRef> tensors, const fs::path& part) {
  Manifest manifest{.info = info, .files = {}, .tensors = {}};
  manifest.files.push_back({.file = kPart,
                            .bytes = static_cast<std::int64_t>(fs::file_size(part)),
                            .sha256 = sha256_of_file(part)});
  for (const TensorRef& tensor : tensors) {
    manifest.tensors.push_back(
        {.name = tensor.group + "/" + tensor.slice.name,
         .dtype = tensor.dtype,
         .shape = tensor.slice.global_shape,
         .slices = {{.file = kPart, .offset = tensor.slice.offset, .shape = tensor.slice.extent}}});
  }
  return manifest;
}

/// A folder cannot be renamed onto another: the old one steps aside first.
void put_in_place(const fs::path& partial, const fs::path& target) {
  fs::path replaced = target;
  replaced += ".replaced";
  fs::remove_all(replaced);
  if (fs::exists(target)) fs::rename(target, replaced);
  fs::rename(partial, target);
  sync_folder(target.parent_path());
  fs::remove_all(replaced);
}

[[noreturn]] void fail(const fs::filesystem_error& error, const fs::path& folder) {
  throw checkpoint_error("cannot be written (" + error.code().message() + ")",
                         (error.path1().empty() ? folder : error.path1()).string(),
                         "check space and permissions, or name another --output");
}

}  // namespace

fs::path save(const fs::path& checkpoints, const CheckpointInfo& info, std::span<const TensorRef> tensors,
              h5::Library& library) {
  const fs::path target = checkpoints / step_folder(info.step);
  fs::path partial = target;
  partial += ".partial";
  try {
    fs::remove_all(partial);
    fs::create_directories(partial);
    write_part(partial / kPart, tensors, library);
    write_manifest(partial, describe(info, tensors, partial / kPart));
    sync_folder(partial);
    put_in_place(partial, target);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    fail(error, partial);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
  return target;
}

void mark_best(const fs::path& checkpoints, std::int64_t step) {
  try {
    const fs::path aside = checkpoints / "best.partial";
    fs::remove(aside);
    fs::create_directory_symlink(step_folder(step), aside);
    fs::rename(aside, checkpoints / "best");
  } catch (const fs::filesystem_error& error) {
    fail(error, checkpoints / "best");
  }
}

}  // namespace dtrain::checkpoint
