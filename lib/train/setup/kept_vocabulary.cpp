#include "train/setup/kept_vocabulary.hpp"

#include <optional>
#include <system_error>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"
#include "data/shards/vocabulary_hash.hpp"

namespace dtrain::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "vocabulary";

/// What a checkpoint's folder says, or a file of weights does not.
std::string vocabulary_of(const fs::path& checkpoint) {
  std::error_code ignored;
  if (!fs::is_directory(checkpoint, ignored)) return {};
  return checkpoint::read_manifest(checkpoint).info.vocabulary.all;
}

}  // namespace

void keep_vocabulary(const std::string& run_folder, const data::DatasetInfo& info) {
  const fs::path folder = fs::path(run_folder) / kFolder;
  std::error_code problem;
  if (!info.tokenizer || fs::exists(folder / "dataset.json", problem)) return;
  fs::create_directories(folder, problem);
  if (problem) throw checkpoint_error("cannot be created", folder.string(), problem.message());
  try {
    data::write_dataset_info(folder, info);
  } catch (const Error& error) {
    throw checkpoint_error(error.problem(), (folder / "dataset.json").string(),
                           "make room on that file system");
  }
}

fs::path folder_of_vocabulary(const RunConfig& config) {
  const fs::path checkpoint = config.model.init_from;
  const auto wanted = vocabulary_of(checkpoint);
  std::optional<Error> missing;
  fs::path named;
  try {
    named = data::find_dataset(config.data.dataset, config.data.root);
    if (wanted.empty() || data::vocabulary_hash(data::read_dataset_info(named)) == wanted) return named;
  } catch (const Error& error) {
    missing = error;
  }
  std::error_code ignored;
  for (const auto& path : {checkpoint.lexically_normal(), fs::weakly_canonical(checkpoint, ignored)}) {
    const fs::path kept = path.parent_path().parent_path() / kFolder;
    if (wanted.empty() || !fs::exists(kept / "dataset.json", ignored)) continue;
    if (data::vocabulary_hash(data::read_dataset_info(kept)) == wanted) return kept;
  }
  if (missing) throw Error(*missing);
  return named;
}

}  // namespace dtrain::train
