#include "data/formats/own_arrays.hpp"

#include <array>
#include <fstream>

#include "core/error.hpp"
#include "core/regular_file.hpp"
#include "core/sha256.hpp"
#include "data/formats/npy.hpp"
#include "data/formats/packed_arrays.hpp"
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

/// Several inputs of a folder, each in a file.
Originals read_named_npy(const StageOptions& options,
                         const std::vector<std::pair<std::string, std::string>>& named) {
  std::vector<std::shared_ptr<const Column>> columns;
  std::vector<fs::path> files;
  for (const auto& [name, file] : named) {
    files.push_back(options.from / file);
    columns.push_back(open_npy(files.back(), packed_types()));
  }
  files.push_back(options.from / options.targets);
  const auto targets = open_npy(files.back(), kTargetTypes);
  Originals found =
      from_packed(named, columns, targets, options.from.string(), files.back().string(), options.task);
  for (const fs::path& file : files)
    found.sources.push_back({file.filename().string(), sha256_of_file(file, ExitCode::data)});
  return found;
}

}  // namespace

bool is_hdf5_source(const StageOptions& options) {
  constexpr std::array<char, 8> kMagic = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  if (fs::is_directory(options.from)) return false;
  require_regular_file(options.from, ExitCode::data);
  std::ifstream stream(options.from, std::ios::binary);
  std::array<char, 8> start{};
  return stream.read(start.data(), start.size()) && start == kMagic;
}

bool is_npy_source(const StageOptions& options) {
  if (!fs::is_directory(options.from)) return is_npy(options.from);
  const auto named = named_arrays(options.inputs);
  if (!named.empty()) return is_npy(options.from / named.front().second);
  return options.inputs.ends_with(".npy") ||
         (!options.inputs.empty() && is_npy(options.from / options.inputs));
}

Originals read_hdf5(const StageOptions& options, h5::Library& library) {
  if (fs::is_directory(options.from))
    throw usage_error("is a folder", "--from " + options.from.string(), "give the HDF5 file itself");
  require_both(options, "name the arrays in the file, e.g. --inputs /x --targets /y");
  if (const auto named = named_arrays(options.inputs); !named.empty()) {
    std::vector<ArrayRequest> requests;
    for (const auto& [name, array] : named) requests.push_back({array, packed_types()});
    requests.push_back({options.targets, kTargetTypes});
    auto arrays = open_columns(options.from, requests, library, {.few_reads = true});
    const auto targets = std::move(arrays.back());
    arrays.pop_back();
    Originals found = from_packed(named, arrays, targets, options.from.string(),
                                  options.from.string() + ":" + options.targets, options.task);
    found.sources.push_back({options.from.filename().string(), sha256_of_file(options.from, ExitCode::data)});
    return found;
  }
  const auto columns =
      open_columns(options.from, {{options.inputs, kInputTypes}, {options.targets, kTargetTypes}}, library,
                   {.few_reads = true});
  const std::string inputs_name = options.from.string() + ":" + options.inputs;
  require_same_count(*columns[0], *columns[1], inputs_name, options.targets);
  Originals found = from_arrays(columns[0], columns[1], inputs_name,
                                options.from.string() + ":" + options.targets, options.task);
  found.sources.push_back({options.from.filename().string(), sha256_of_file(options.from, ExitCode::data)});
  return found;
}

Originals read_npy(StageOptions options) {
  if (!fs::is_directory(options.from)) {  // the inputs themselves, the targets beside them
    if (options.inputs.empty()) options.inputs = options.from.filename().string();
    options.from = options.from.parent_path();
  }
  require_both(options, "name the files, e.g. --inputs x.npy --targets y.npy");
  if (const auto named = named_arrays(options.inputs); !named.empty()) return read_named_npy(options, named);
  const fs::path inputs_file = options.from / options.inputs;
  const fs::path targets_file = options.from / options.targets;
  const auto inputs = open_npy(inputs_file, kInputTypes);
  const auto targets = open_npy(targets_file, kTargetTypes);
  require_same_count(*inputs, *targets, inputs_file.string(), targets_file.filename().string());
  Originals found = from_arrays(inputs, targets, inputs_file.string(), targets_file.string(), options.task);
  for (const fs::path& file : {inputs_file, targets_file})
    found.sources.push_back({file.filename().string(), sha256_of_file(file, ExitCode::data)});
  return found;
}

}  // namespace dtrain::data
