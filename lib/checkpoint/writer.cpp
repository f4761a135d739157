#include "checkpoint/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <system_error>

#include "checkpoint/file_io.hpp"
#include "checkpoint/part_file.hpp"
#include "core/error.hpp"
#include "core/sha256.hpp"

namespace dtrain::checkpoint {
namespace fs = std::filesystem;
namespace {

/// What a part adds to the manifest.
Manifest describe(std::span<const TensorRef> tensors, const fs::path& part) {
  Manifest manifest;
  const std::string file = part.filename().string();
  manifest.files.push_back({.file = file,
                            .bytes = static_cast<std::int64_t>(fs::file_size(part)),
                            .sha256 = sha256_of_file(part, ExitCode::checkpoint)});
  for (const TensorRef& tensor : tensors) {
    manifest.tensors.push_back(
        {.name = tensor.group + "/" + tensor.slice.name,
         .dtype = tensor.dtype,
         .shape = tensor.slice.global_shape,
         .slices = {{.file = file, .offset = tensor.slice.offset, .shape = tensor.slice.extent}}});
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

Saving::Saving(const fs::path& checkpoints, std::int64_t step)
    : target_(checkpoints / step_folder(step)), partial_(target_) {
  partial_ += ".partial";
}

void Saving::begin() const {
  try {
    fs::remove_all(partial_);
    fs::create_directories(partial_);
  } catch (const fs::filesystem_error& error) {
    fail(error, partial_);
  }
}

std::string Saving::write_part(int writer, std::span<const TensorRef> tensors, h5::Library& library) const {
  const auto part = partial_ / fmt::format("part-{:05}.h5", writer);
  try {
    checkpoint::write_part(part, tensors, library);
    return manifest_text(describe(tensors, part));
  } catch (const fs::filesystem_error& error) {
    fail(error, part);
  }
}

fs::path Saving::commit(const CheckpointInfo& info, std::span<const std::string> parts) const {
  Manifest manifest{.info = info, .files = {}, .tensors = {}};
  for (const std::string& text : parts) {
    auto part = parse_manifest(text, partial_.string());
    std::ranges::move(part.files, std::back_inserter(manifest.files));
    std::ranges::move(part.tensors, std::back_inserter(manifest.tensors));
  }
  try {
    write_manifest(partial_, manifest);
    sync_folder(partial_);
    put_in_place(partial_, target_);
  } catch (const fs::filesystem_error& error) {
    fail(error, partial_);
  }
  return target_;
}

void Saving::abandon() const noexcept {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

fs::path save(const fs::path& checkpoints, const CheckpointInfo& info, std::span<const TensorRef> tensors,
              h5::Library& library) {
  const Saving saving(checkpoints, info.step);
  try {
    saving.begin();
    const std::string part = saving.write_part(0, tensors, library);
    return saving.commit(info, std::span(&part, 1));
  } catch (...) {
    saving.abandon();
    throw;
  }
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
