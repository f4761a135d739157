#include "train/setup/kept_vocabulary.hpp"

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

std::string dataset_with_vocabulary(const RunConfig& config) {
  const fs::path checkpoint = config.model.init_from;
  const auto& trained_on = config.data.dataset;
  const auto wanted = vocabulary_of(checkpoint);
  if (wanted.empty() || trained_on == "synthetic") return trained_on;
  try {
    const auto staged = data::find_dataset(trained_on, config.data.root);
    if (data::vocabulary_hash(data::read_dataset_info(staged)) == wanted) return trained_on;
  } catch (const Error&) {  // it is gone or damaged; without a kept one, it is blamed where it is opened
  }
  std::error_code ignored;
  for (const auto& path : {checkpoint.lexically_normal(), fs::weakly_canonical(checkpoint, ignored)}) {
    const fs::path kept = path.parent_path().parent_path() / kFolder;
    if (!fs::exists(kept / "dataset.json", ignored)) continue;
    if (data::vocabulary_hash(data::read_dataset_info(kept)) == wanted) return kept.string();
  }
  return trained_on;
}

}  // namespace dtrain::train
