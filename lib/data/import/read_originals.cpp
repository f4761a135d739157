#include "data/import/read_originals.hpp"

#include <system_error>

#include "core/error.hpp"
#include "core/sha256.hpp"
#include "data/formats/cifar10.hpp"
#include "data/formats/idx.hpp"
#include "data/formats/imdb.hpp"
#include "data/formats/npy.hpp"
#include "data/formats/parallel_text.hpp"
#include "data/formats/plain_text.hpp"
#include "data/formats/tables.hpp"
#include "data/formats/text_csv.hpp"
#include "data/import/recognise.hpp"
#include "data/shards/shard.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

const std::vector<ElementType> kInputTypes = {ElementType::float32, ElementType::uint8};
const std::vector<ElementType> kTargetTypes = {ElementType::int64, ElementType::float32};

void require_both(const StageOptions& options, const char* example) {
  if (options.inputs.empty()) throw usage_error("is needed for this format", "--inputs", example);
  if (options.targets.empty()) throw usage_error("is needed for this format", "--targets", example);
}

/// An option that would do nothing is a misunderstanding.
void refuse_table_options(const StageOptions& options, const std::string& format) {
  for (const auto& [option, given] : {std::pair{"--target", !options.target.empty()},
                                      {"--ignore", !options.ignore.empty()},
                                      {"--site", !options.site.empty()},
                                      {"--task", !options.task.empty()},
                                      {"--standardize", options.standardize}})
    if (given)
      throw usage_error("is for tables of text, and the format here is " + format, option,
                        "leave it out, or say --format csv");
}

Originals read_hdf5(const StageOptions& options, h5::Library& library) {
  if (fs::is_directory(options.from))
    throw usage_error("is a folder", "--from " + options.from.string(), "give the HDF5 file itself");
  require_both(options, "name the arrays in the file, e.g. --inputs /x --targets /y");
  const auto columns = open_columns(
      options.from, {{options.inputs, kInputTypes}, {options.targets, kTargetTypes}}, library, {});
  const std::string inputs_name = options.from.string() + ":" + options.inputs;
  require_same_count(*columns[0], *columns[1], inputs_name, options.targets);
  Originals found = from_arrays(columns[0], columns[1], inputs_name);
  found.sources.push_back({options.from.filename().string(), sha256_of_file(options.from, ExitCode::data)});
  return found;
}

Originals read_npy(StageOptions options) {
  if (!fs::is_directory(options.from)) {  // the inputs themselves, the targets beside them
    if (options.inputs.empty()) options.inputs = options.from.filename().string();
    options.from = options.from.parent_path();
  }
  require_both(options, "name the files, e.g. --inputs x.npy --targets y.npy");
  const fs::path inputs_file = options.from / options.inputs;
  const fs::path targets_file = options.from / options.targets;
  const auto inputs = open_npy(inputs_file, kInputTypes);
  const auto targets = open_npy(targets_file, kTargetTypes);
  require_same_count(*inputs, *targets, inputs_file.string(), targets_file.filename().string());
  Originals found = from_arrays(inputs, targets, inputs_file.string());
  for (const fs::path& file : {inputs_file, targets_file})
    found.sources.push_back({file.filename().string(), sha256_of_file(file, ExitCode::data)});
  return found;
}

}  // namespace

Originals read_originals(const StageOptions& options, h5::Library& library) {
  std::error_code ignored;
  if (!fs::exists(options.from, ignored))
    throw data_error("there is no such file or folder", "--from " + options.from.string(), "check the path");
  const std::string format = recognise(options);
  if (format != "csv") refuse_table_options(options, format);
  if (format == "hdf5") return read_hdf5(options, library);
  if (format == "npy") return read_npy(options);
  if (format == "cifar10") return read_cifar10(options.from);
  if (format == "csv") return read_tables(options);
  if (format == "imdb") return read_imdb(options.from, options.text, options.seed);
  if (format == "parallel") return read_parallel_text(options.from, options.text, options.seed);
  if (format == "text_csv") return read_text_csv(options.from, options.text, options.seed);
  if (format == "text") return read_plain_text(options.from, options.text);
  if (!fs::is_directory(options.from))
    throw data_error("is not a folder", "--from " + options.from.string(),
                     "give the folder that holds the IDX files of images and labels");
  return read_idx_folder(options.from);
}

}  // namespace dtrain::data
