#include "state/kept_program.hpp"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "core/error.hpp"

namespace dtrain::state {
namespace {

namespace fs = std::filesystem;

fs::path place_of(const fs::path& run_folder, const std::string& model_name) {
  return run_folder / "program" / (models::model_title(model_name) + ".pt2");
}

fs::path constants_of(fs::path program) { return program.replace_extension(".constants"); }

}  // namespace

void keep_program(const std::string& run_folder, const std::string& model_name, const models::Model& model) {
  if (model.program_hash().empty()) return;
  const fs::path place = place_of(run_folder, model_name);
  std::error_code problem;
  if (fs::exists(place, problem)) return;
  fs::create_directories(place.parent_path(), problem);
  const fs::path aside = place.string() + ".partial";
  model.save_program(aside.string());
  std::ofstream(constants_of(place)) << model.constants_hash() << '\n';
  fs::rename(aside, place, problem);
  if (problem) throw checkpoint_error("cannot be written", place.string(), "make room on that file system");
}

std::string kept_program(const fs::path& checkpoint, const std::string& model_name) {
  if (!models::is_program_file(model_name)) return model_name;
  const fs::path run = checkpoint.lexically_normal().parent_path().parent_path();
  std::error_code ignored;
  for (const auto& folder : {run, fs::weakly_canonical(checkpoint, ignored).parent_path().parent_path()}) {
    const fs::path place = place_of(folder, model_name);
    if (fs::is_regular_file(place, ignored)) return place.string();
  }
  return model_name;
}

void check_same_program(const std::string& hash, const models::Model& model, const std::string& model_name,
                        const std::string& checkpoint) {
  if (hash == model.program_hash()) {
    if (hash.empty()) return;
    std::string kept;
    std::ifstream file(constants_of(kept_program(checkpoint, model_name)));
    if (!std::getline(file, kept) || kept == model.constants_hash()) return;
    throw checkpoint_error(
        "was trained with other constant tensors in forward than --model has", checkpoint,
        "name the file that it was trained with, or start from its weights with --init-from");
  }
  throw checkpoint_error(
      hash.empty() ? "is of a model of dtrain, not of a program from a file"
                   : "was trained with another program than --model computes",
      checkpoint, "name the file that it was trained with, or start from its weights with --init-from");
}

}  // namespace dtrain::state
