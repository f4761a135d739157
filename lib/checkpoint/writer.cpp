#include "checkpoint/writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/file_io.hpp"
#include "checkpoint/part_file.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/sha256.hpp"

namespace dtrain::checkpoint {
namespace fs = std::filesystem;
namespace {

/// What a part adds to the manifest.
Manifest describe(std::span<const TensorRef> tensors, const fs::path& part) {
  Manifest manifest;
  const std::string file = part.filename().string();
  manifest.files.push_back(
      {.file = file, .bytes = static_cast<std::int64_t>(fs::file_size(part)), .sha256 = hash_of_part(part)});
  const auto datasets = datasets_of(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [slice, group, dtype, data] = tensors[i];
    const std::string name = group + "/" + slice.name;
    manifest.tensors.push_back({.name = name,
                                .dtype = dtype,
                                .shape = slice.global_shape,
                                .slices = {{.file = file,
                                            .offset = slice.offset,
                                            .shape = slice.extent,
                                            .dataset = datasets[i] == name ? "" : datasets[i]}}});
  }
  return manifest;
}

/// Makes one entry of those of each tensor, whose slices different writers, or one, have written.
void join_slices(std::vector<TensorEntry>& tensors) {
  std::map<std::string, std::size_t> places;
  std::vector<TensorEntry> joined;
  for (auto& tensor : tensors) {
    const auto [place, is_new] = places.try_emplace(tensor.name, joined.size());
    if (is_new) {
      joined.push_back(std::move(tensor));
    } else {
      std::ranges::move(tensor.slices, std::back_inserter(joined[place->second].slices));
    }
  }
  tensors = std::move(joined);
}

/// A folder cannot be renamed onto another: the two change places, so that one of them is there at any time.
void put_in_place(const fs::path& partial, const fs::path& target) {
  if (!fs::exists(target)) {
    fs::rename(partial, target);
    return sync_folder(target.parent_path());
  }
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    fs::path replaced = target;  // a file system that cannot exchange
    replaced += ".replaced";
    fs::remove_all(replaced);
    fs::rename(target, replaced);
    fs::rename(partial, target);
    fs::remove_all(replaced);
  }
  sync_folder(target.parent_path());
  fs::remove_all(partial);
}

// What a writer leaves beside its part: the manifest's entries, or the reason why there are none.
constexpr const char* kEntries = ".json";
constexpr const char* kFailure = ".failed";

/// What a writer that failed has said.
std::string reason_in(const fs::path& file) {
  std::string reason = read_text(file);
  return reason.empty() ? file.parent_path().string() + ": no room, not even for a message" : reason;
}

/// What of a part changes as long as its writer gets on: hash_of_part() renews the time.
struct Growth {
  std::uintmax_t bytes = 0;
  fs::file_time_type written = {};
  bool operator==(const Growth&) const = default;
};

Growth growth_of(const fs::path& part) {
  std::error_code bytes_unknown;
  std::error_code time_unknown;
  const Growth growth{.bytes = fs::file_size(part, bytes_unknown),
                      .written = fs::last_write_time(part, time_unknown)};
  return bytes_unknown || time_unknown ? Growth{} : growth;
}

[[noreturn]] void fail(const fs::filesystem_error& error, const fs::path& folder) {
  throw checkpoint_error("cannot be written (" + error.code().message() + ")",
                         (error.path1().empty() ? folder : error.path1()).string(),
                         "check space and permissions, or name another --output");
}

}  // namespace

std::string hash_of_part(const fs::path& part) {
  constexpr double kEvery_s = 2.0;
  double renewed_s = 0;
  return sha256_of_file(part, ExitCode::checkpoint, [&] {
    if (steady_s() < renewed_s + kEvery_s) return;
    std::error_code ignored;  // a file system that keeps no times
    fs::last_write_time(part, fs::file_time_type::clock::now(), ignored);
    renewed_s = steady_s();
  });
}

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
  const auto part = part_of(writer);
  try {
    checkpoint::write_part(part, tensors, library);
    return manifest_text(describe(tensors, part));
  } catch (const fs::filesystem_error& error) {
    fail(error, part);
  }
}

void Saving::leave_part(int writer, std::span<const TensorRef> tensors, h5::Library& library) const noexcept {
  try {
    std::string text;
    std::string ending = kEntries;
    try {
      text = write_part(writer, tensors, library);
    } catch (const std::exception& error) {
      text = error.what();
      ending = kFailure;
    }
    const auto aside = word_of(writer, ".aside");
    write_text(aside, text);
    fs::rename(aside, word_of(writer, ending));
  } catch (const std::exception&) {
    // On a full disk there may be no room for words, but for an empty file. Without it await_parts() waits in
    // vain, up to its limit.
    const std::ofstream empty(word_of(writer, kFailure));
  }
}

fs::path Saving::part_of(int writer) const { return word_of(writer, ".h5"); }

fs::path Saving::word_of(int writer, std::string_view ending) const {
  return partial_ / fmt::format("part-{:05}{}", writer, ending);
}

std::vector<std::string> Saving::await_parts(std::span<const int> writers, double silence_s,
                                             const std::atomic<bool>& given_up) const {
  constexpr auto kPause = std::chrono::milliseconds(5);
  std::vector<std::string> parts;
  for (const int writer : writers) {
    double grown_s = steady_s();
    Growth growth = growth_of(part_of(writer));
    while (!fs::exists(word_of(writer, kEntries))) {
      const auto failure = word_of(writer, kFailure);
      if (fs::exists(failure)) throw Error(reason_in(failure), {.code = ExitCode::checkpoint});
      require(!given_up, "a writer is gone", {.subject = partial_.string(), .code = ExitCode::checkpoint});
      if (const Growth now = growth_of(part_of(writer)); now != growth) {
        growth = now;
        grown_s = steady_s();
      }
      if (steady_s() > grown_s + silence_s) {
        throw checkpoint_error(
            fmt::format("writer {} has neither written nor hashed its part for {:.0f} s", writer, silence_s),
            partial_.string(), "check that all nodes see the folder of --output");
      }
      std::this_thread::sleep_for(kPause);
    }
    parts.push_back(read_text(word_of(writer, kEntries)));
  }
  for (const int writer : writers) fs::remove(word_of(writer, kEntries));
  return parts;
}

fs::path Saving::commit(const CheckpointInfo& info, std::span<const std::string> parts) const {
  Manifest manifest{.info = info, .files = {}, .tensors = {}};
  for (const std::string& text : parts) {
    auto part = parse_manifest(text, partial_.string());
    std::ranges::move(part.files, std::back_inserter(manifest.files));
    std::ranges::move(part.tensors, std::back_inserter(manifest.tensors));
  }
  join_slices(manifest.tensors);
  try {
    write_manifest(partial_, manifest);
    sync_folder(partial_);
    put_in_place(partial_, target_);
  } catch (const fs::filesystem_error& error) {
    fail(error, partial_);
  }
  return target_;
}

bool Saving::is_open() const noexcept {
  std::error_code ignored;
  return fs::exists(partial_, ignored);
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
    const fs::path folder = saving.commit(info, std::span(&part, 1));
    mark(checkpoints, kLast, info.step);
    return folder;
  } catch (...) {
    saving.abandon();
    throw;
  }
}

namespace {

std::optional<std::int64_t> step_of(const std::string& name, std::string_view ending) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix) || !name.ends_with(ending)) return std::nullopt;
  if (name.size() < kPrefix.size() + ending.size()) return std::nullopt;
  return parse_number<std::int64_t>(
      std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - ending.size()));
}

/// Folders step-NNNNNNNN with this ending, newest first.
std::vector<fs::path> listed(const fs::path& checkpoints, std::string_view ending) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    const auto step = step_of(entry.path().filename().string(), ending);
    if (step && entry.is_directory() && !entry.is_symlink()) found.emplace_back(*step, entry.path());
  }
  std::ranges::sort(found, std::ranges::greater{});
  std::vector<fs::path> folders;
  for (auto& [step, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

/// Removes the files that a checkpoint has, and its folder if nothing of others is in it.
void remove_checkpoint(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("manifest.") || name.starts_with("part-");
    if (ours && entry.is_regular_file()) fs::remove(entry.path());
  }
  std::error_code left;
  fs::remove(folder, left);
}

}  // namespace

std::vector<fs::path> list(const fs::path& checkpoints) { return listed(checkpoints, ""); }

std::int64_t step_of(const fs::path& folder) { return step_of(folder.filename().string(), "").value_or(0); }

void remove_old(const fs::path& checkpoints, int keep) {
  try {
    std::error_code ignored;
    const fs::path best = fs::read_symlink(checkpoints / "best", ignored);
    const auto whole = list(checkpoints);
    for (std::size_t i = static_cast<std::size_t>(keep); i < whole.size(); ++i) {
      if (whole[i].filename() != best) remove_checkpoint(whole[i]);
    }
    const auto damaged = listed(checkpoints, ".damaged");
    for (std::size_t i = 1; i < damaged.size(); ++i) fs::remove_all(damaged[i]);
    for (const auto& partial : listed(checkpoints, ".partial")) fs::remove_all(partial);
  } catch (const fs::filesystem_error& error) {
    fail(error, checkpoints);
  }
}

namespace {

void check_link(const fs::path& place) {
  std::error_code ignored;
  if (fs::is_directory(fs::symlink_status(place, ignored)))
    throw checkpoint_error(
        "is a folder where a link to a checkpoint should be, as in a copy that followed links",
        place.string(), "remove it, and copy runs with their links, as cp -a does");
}

}  // namespace

void check_links(const fs::path& checkpoints) {
  for (const auto link : {kBest, kLast}) check_link(checkpoints / link);
}

void mark(const fs::path& checkpoints, std::string_view link, std::int64_t step) {
  const fs::path place = checkpoints / link;
  check_link(place);
  try {
    const fs::path aside = place.string() + ".partial";
    fs::remove(aside);
    fs::create_directory_symlink(step_folder(step), aside);
    fs::rename(aside, place);
  } catch (const fs::filesystem_error& error) {
    fail(error, place);
  }
}

}  // namespace dtrain::checkpoint
