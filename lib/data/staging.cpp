#include "data/staging.hpp"

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include "core/error.hpp"
#include "core/sha256.hpp"
#include "data/shared_error.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

/// One shard, under another name until it is known to be whole.
void copy_shard(const fs::path& from, const fs::path& to, const ShardInfo& shard) {
  const fs::path target = to / shard.file;
  const fs::path aside = target.string() + ".partial";
  fs::copy_file(from / shard.file, aside, fs::copy_options::overwrite_existing);
  if (!shard.sha256.empty() && sha256_of_file(aside, ExitCode::data) != shard.sha256) {
    fs::remove(aside);
    throw data_error("does not have the SHA-256 that dataset.json gives", (from / shard.file).string(),
                     "restore the file or stage the dataset again");
  }
  fs::rename(aside, target);
}

bool complete(const fs::path& copy, const fs::path& original) {
  std::error_code ignored;
  return fs::exists(copy / "dataset.json", ignored) &&
         sha256_of_file(copy / "dataset.json", ExitCode::data) ==
             sha256_of_file(original / "dataset.json", ExitCode::data);
}

/// dataset.json is copied last: a copy that has it is whole.
void copy_dataset(const Dataset& dataset, const fs::path& copy) {
  try {
    fs::create_directories(copy);
    if (complete(copy, dataset.folder())) return;
    fs::remove(copy / "dataset.json");
    for (const auto& [name, split] : dataset.info().splits)
      for (const ShardInfo& shard : split.shards) copy_shard(dataset.folder(), copy, shard);
    const fs::path aside = copy / "dataset.json.partial";
    fs::copy_file(dataset.folder() / "dataset.json", aside, fs::copy_options::overwrite_existing);
    fs::rename(aside, copy / "dataset.json");
  } catch (const fs::filesystem_error& error) {
    throw data_error("the node-local copy failed: " + error.code().message(), copy.string(),
                     "free some space there, choose another folder, or use --staging none");
  }
}

/// The failure of the rank that copies, for the others of its node: a file beside the copy.
fs::path notice_beside(const fs::path& copy) { return copy.string() + ".failed"; }

std::optional<Error> read_notice(const fs::path& copy) {
  std::ifstream stream(notice_beside(copy));
  return error_from_text({std::istreambuf_iterator<char>(stream), {}});
}

}  // namespace

Dataset copy_to_local(const Dataset& dataset, const fs::path& directory, const NodeTeam& team,
                      h5::Library& library) {
  if (dataset.folder().empty()) return dataset;  // already in memory
  // Two datasets of one name from two data roots get a folder each.
  const std::string version = sha256_of_file(dataset.folder() / "dataset.json", ExitCode::data).substr(0, 12);
  const fs::path copy = directory / (dataset.info().name + "-" + version);
  const auto wait_for_all = [&] {
    if (team.barrier) team.barrier();
  };
  std::optional<Error> failure;
  if (team.local_rank == 0) {
    try {
      copy_dataset(dataset, copy);
    } catch (const Error& error) {
      failure = error;
      std::ofstream(notice_beside(copy)) << error_to_text(error);
    }
  }
  wait_for_all();
  if (!failure && complete(copy, dataset.folder())) return Dataset::open(copy, library);
  if (!failure) failure = read_notice(copy);
  wait_for_all();  // all have read it
  std::error_code ignored;
  if (team.local_rank == 0) fs::remove(notice_beside(copy), ignored);
  throw failure.value_or(data_error("the node-local copy failed", copy.string(),
                                    "free some space there, choose another folder, or use --staging none"));
}

}  // namespace dtrain::data
