#include "data/import/recognise.hpp"

#include <array>
#include <cstring>
#include <fstream>

#include "core/error.hpp"
#include "core/regular_file.hpp"
#include "data/formats/cifar10.hpp"
#include "data/formats/idx.hpp"
#include "data/formats/imdb.hpp"
#include "data/formats/npy.hpp"
#include "data/formats/parallel_text.hpp"
#include "data/formats/plain_text.hpp"
#include "data/formats/tables.hpp"
#include "data/formats/text_csv.hpp"
#include "data/import/archive.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 10> kFormats = {"idx",  "hdf5",     "npy",      "cifar10", "csv",
                                                  "imdb", "parallel", "text_csv", "text",    "synthetic"};
constexpr int kMostGlances = 1000;  // files looked at before a format is given up

/// How a format shows in a single file, wherever that lies.
struct Rule {
  const char* format;
  bool (*fits)(const OriginalFile& start);
};

// Asked of each file in this order.
constexpr std::array<Rule, 4> kRules = {{{"cifar10", is_cifar10_file},
                                         {"imdb", is_imdb_file},
                                         {"parallel", is_parallel_file},
                                         {"text_csv", is_text_csv_file}}};

// Asked one after another when none of the others fits any file: a list of addresses beside reviews, or notes
// beside a table, are plain text, too.
constexpr std::array<Rule, 2> kLastRules = {{{"csv", is_table_file}, {"text", is_plain_text_file}}};

bool is_hdf5(const fs::path& file) {
  constexpr std::array<char, 8> kMagic = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  require_regular_file(file, ExitCode::data);
  std::ifstream stream(file, std::ios::binary);
  std::array<char, 8> start{};
  return stream.read(start.data(), start.size()) && start == kMagic;
}

/// Whether IDX is meant: also by name, so that a damaged file is called one and not unknown.
bool holds_idx(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool named = name.find("idx") != std::string::npos || name.find("ubyte") != std::string::npos;
    if (entry.is_regular_file() && (named || is_idx(entry.path()))) return true;
  }
  return false;
}

/// The first rule that any file fits; empty without one.
std::string by_files(const fs::path& from, std::span<const Rule> rules) {
  std::string format;
  int glances = 0;
  glance_at_files(from, [&](const OriginalFile& file) {
    for (const Rule& rule : rules)
      if (format.empty() && rule.fits(file)) format = rule.format;
    return format.empty() && ++glances < kMostGlances;
  });
  return format;
}

}  // namespace

std::span<const char* const> format_names() { return kFormats; }

std::string recognise(const StageOptions& options) {
  if (!options.format.empty()) return options.format;
  const fs::path& from = options.from;
  const bool folder = fs::is_directory(from);
  if (folder) {
    if (!options.inputs.empty() && is_npy(from / options.inputs)) return "npy";
    if (options.inputs.ends_with(".npy")) return "npy";  // missing or damaged: the reader says which
    if (holds_idx(from)) return "idx";
  } else {
    if (is_hdf5(from)) return "hdf5";
    if (is_npy(from)) return "npy";
    if (is_idx(from))
      throw data_error("is one IDX file, but images and labels are needed", from.string(),
                       "give the folder that holds both");
  }
  std::string format = by_files(from, kRules);
  for (const Rule& rule : kLastRules)
    if (format.empty()) format = by_files(from, std::span(&rule, 1));
  if (format.empty())
    throw data_error(
        folder ? "holds no files that dtrain recognises" : "is not a file that dtrain recognises",
        from.string(),
        "give original files of a format that 'dtrain stage --help' lists, or name it with --format");
  return format;
}

}  // namespace dtrain::data
