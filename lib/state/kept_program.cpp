#include "state/kept_program.hpp"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <optional>
#include <system_error>

#include "core/error.hpp"

namespace dtrain::state {
namespace {

namespace fs = std::filesystem;

fs::path place_of(const fs::path& run_folder, const std::string& model_name) {
  return run_folder / "program" / (models::model_title(model_name) + ".pt2");
}

fs::path constants_of(fs::path program) { return program.replace_extension(".constants"); }

Error cannot_be_written(const fs::path& place) {
  return checkpoint_error("cannot be written", place.string(), "make room on that file system");
}

/// The run's folders: as a checkpoint is named, and where a link in its name leads.
std::array<fs::path, 2> run_folders(const fs::path& checkpoint) {
  std::error_code ignored;
  return {checkpoint.lexically_normal().parent_path().parent_path(),
          fs::weakly_canonical(checkpoint, ignored).parent_path().parent_path()};
}

/// The hash that the run of a checkpoint has kept, whatever its program is called; nothing where it has none.
std::optional<std::string> kept_constants(const fs::path& checkpoint) {
  for (const auto& run : run_folders(checkpoint)) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run / "program", ignored)) {
      if (entry.path().extension() != ".constants") continue;
      std::string line;
      std::ifstream file(entry.path());
      if (std::getline(file, line)) return line;
    }
  }
  return std::nullopt;
}

}  // namespace

void keep_program(const std::string& run_folder, const std::string& model_name, const models::Model& model) {
  if (model.program_hash().empty()) return;
  const fs::path place = place_of(run_folder, model_name);
  std::error_code problem;
  if (fs::exists(place, problem)) return;
  fs::create_directories(place.parent_path(), problem);
  const fs::path aside = place.string() + ".partial";
  model.save_program(aside.string());
  const fs::path constants = constants_of(place);
  const fs::path constants_aside = constants.string() + ".partial";
  std::ofstream file(constants_aside);
  file << model.constants_hash() << '\n';
  file.close();  // a full disk is found here
  if (!file) throw cannot_be_written(constants);
  fs::rename(constants_aside, constants, problem);
  if (problem) throw cannot_be_written(constants);
  fs::rename(aside, place, problem);
  if (problem) throw cannot_be_written(place);
}

std::string kept_program(const fs::path& checkpoint, const std::string& model_name) {
  if (!models::is_program_file(model_name)) return model_name;
  std::error_code ignored;
  for (const auto& folder : run_folders(checkpoint)) {
    const fs::path place = place_of(folder, model_name);
    if (fs::is_regular_file(place, ignored)) return place.string();
  }
  return model_name;
}

void check_same_program(const std::string& hash, const models::Model& model, const std::string& checkpoint) {
  if (hash == model.program_hash()) {
    if (hash.empty()) return;
    const auto kept = kept_constants(checkpoint);
    if (!kept || *kept == model.constants_hash()) return;
    throw checkpoint_error("was trained with other constant tensors in forward than --model has", checkpoint,
                           "name the file that it was trained with, move that of today away (a run that goes "
                           "on has kept the program), or start from its weights with --init-from");
  }
  throw checkpoint_error(
      hash.empty() ? "is of a model of dtrain, not of a program from a file"
                   : "was trained with another program than --model computes",
      checkpoint, "name the file that it was trained with, or start from its weights with --init-from");
}

}  // namespace dtrain::state
