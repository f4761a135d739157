#include "data/import/read_originals.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <system_error>

#include "core/error.hpp"
#include "data/import/format_table.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr int kMostGlances = 1000;  // files looked at before a format is given up

void refuse_image_options(const StageOptions& options, const Format& format) {
  for (const auto& [option, given] :
       {std::pair{"--image-size", options.image_size.is_given()}, {"--skip-broken", options.skip_broken}})
    if (given)
      throw usage_error("is for images in files, and the format here is " + std::string(format.name), option,
                        "leave it out");
}

/// An option that would do nothing is a misunderstanding.
void refuse_table_options(const StageOptions& options, const Format& format) {
  for (const auto& [option, given] : {std::pair{"--target", !options.target.empty()},
                                      {"--ignore", !options.ignore.empty()},
                                      {"--site", !options.site.empty()},
                                      {"--validation", !options.validation.empty()},
                                      {"--test", !options.test.empty()},
                                      {"--na-values", !options.na_values.empty()},
                                      {"--task", !options.task.empty() && !format.takes_task},
                                      {"--standardize", !options.standardize.empty()}})
    if (given)
      throw usage_error(std::string("is for tables of text, and the format here is ") + format.name, option,
                        "leave it out, or say --format csv");
}

/// The first of `candidates` that fits any file below `from`; null without one.
const Format* format_by_files(const fs::path& from, std::span<const Format* const> candidates) {
  const Format* found = nullptr;
  int glances = 0;
  glance_at_files(from, [&](const OriginalFile& file) {
    for (const Format* format : candidates)
      if (found == nullptr && format->recognises_file(file)) found = format;
    return found == nullptr && ++glances < kMostGlances;
  });
  return found;
}

/// The format of options.from, by its content. Reads no more than the beginnings of files.
const Format& recognise(const StageOptions& options) {
  std::vector<const Format*> by_order;
  for (const Format& format : formats())
    if (format.recognises != nullptr || format.recognises_file != nullptr) by_order.push_back(&format);
  std::ranges::stable_sort(by_order, {}, [](const Format* format) { return format->order; });
  for (auto at = by_order.begin(); at != by_order.end();) {
    const auto end =
        std::find_if(at, by_order.end(), [at](const Format* f) { return f->order != (*at)->order; });
    std::vector<const Format*> by_file;
    for (; at != end; ++at) {
      if ((*at)->recognises_file != nullptr) by_file.push_back(*at);
      if ((*at)->recognises != nullptr && (*at)->recognises(options)) return **at;
    }
    if (by_file.empty()) continue;
    if (const Format* found = format_by_files(options.from, by_file)) return *found;
  }
  throw data_error(
      fs::is_directory(options.from) ? "holds no files that dtrain recognises"
                                     : "is not a file that dtrain recognises",
      options.from.string(),
      "give original files of a format that 'dtrain stage --help' lists, or name it with --format");
}

/// Parquet's own library is not linked: a script makes tables of such files. Throws data_error.
void refuse_parquet(const fs::path& from) {
  constexpr std::string_view kMagic = "PAR1";
  std::error_code ignored;
  if (!fs::is_regular_file(from, ignored)) return;
  std::ifstream stream(from, std::ios::binary);
  std::array<char, kMagic.size()> start{};
  if (!stream.read(start.data(), start.size()) || std::string_view(start.data(), start.size()) != kMagic)
    return;
  throw data_error("is a Parquet file, which stage does not read itself", from.string(),
                   "make a table of it with python3 jobs/parquet_to_csv.py FILE TABLE.csv");
}

}  // namespace

Originals read_originals(const StageOptions& options, h5::Library& library) {
  std::error_code ignored;
  if (!fs::exists(options.from, ignored))
    throw data_error("there is no such file or folder", "--from " + options.from.string(), "check the path");
  refuse_parquet(options.from);
  const Format& format = options.format.empty() ? recognise(options) : *find_format(options.format);
  if (!format.takes_table_options) refuse_table_options(options, format);
  if (!format.takes_image_options) refuse_image_options(options, format);
  return format.read(options, library);
}

}  // namespace dtrain::data
