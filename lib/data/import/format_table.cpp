#include "data/import/format_table.hpp"

#include <algorithm>
#include <array>

#include "data/formats/cifar10.hpp"
#include "data/formats/idx.hpp"
#include "data/formats/image_folder.hpp"
#include "data/formats/imdb.hpp"
#include "data/formats/npz.hpp"
#include "data/formats/own_arrays.hpp"
#include "data/formats/parallel_text.hpp"
#include "data/formats/plain_text.hpp"
#include "data/formats/tables.hpp"
#include "data/formats/text_csv.hpp"

namespace dtrain::data {
namespace {

// A list of addresses beside reviews, or notes beside a table, are plain text, too: tables and plain text
// come last, and HDF5 first, because it refuses what is no regular file.
constexpr std::array<Format, 12> kFormats = {
    {{.name = "idx",
      .description = "IDX",
      .order = 3,
      .recognises = [](const StageOptions& options) { return is_idx_source(options.from); },
      .read = [](const StageOptions& options, h5::Library&) { return read_idx_folder(options.from); }},
     {.name = "hdf5",
      .description = "HDF5",
      .order = 1,
      .recognises = is_hdf5_source,
      .read = read_hdf5,
      .takes_task = true},
     {.name = "npy",
      .description = ".npy",
      .order = 2,
      .recognises = is_npy_source,
      .read = [](const StageOptions& options, h5::Library&) { return read_npy(options); },
      .takes_task = true},
     {.name = "npz",
      .description = ".npz",
      .order = 2,
      .recognises = [](const StageOptions& options) { return options.from.extension() == ".npz"; },
      .read = [](const StageOptions& options, h5::Library&) { return read_npz(options); },
      .takes_task = true},
     {.name = "images",
      .description = "PNG and JPEG images in a folder per class",
      .order = 4,
      .recognises_file = is_image_file,
      .read = [](const StageOptions& options, h5::Library&) { return read_image_folder(options); },
      .takes_image_options = true},
     {.name = "cifar10",
      .description = "CIFAR-10's binary version",
      .order = 4,
      .recognises_file = is_cifar10_file,
      .read = [](const StageOptions& options, h5::Library&) { return read_cifar10(options.from); }},
     {.name = "csv",
      .description = "tables of CSV",
      .order = 5,
      .recognises_file = is_table_file,
      .read = [](const StageOptions& options, h5::Library&) { return read_tables(options); },
      .takes_table_options = true},
     {.name = "imdb",
      .description = "IMDB's reviews",
      .order = 4,
      .recognises_file = is_imdb_file,
      .read = [](const StageOptions& options,
                 h5::Library&) { return read_imdb(options.from, options.text, options.split_rule()); }},
     {.name = "parallel",
      .description = "parallel text",
      .order = 4,
      .recognises_file = is_parallel_file,
      .read =
          [](const StageOptions& options, h5::Library&) {
            return read_parallel_text(options.from, options.text, options.split_rule());
          }},
     {.name = "text_csv",
      .description = "class-and-text CSV",
      .order = 4,
      .recognises_file = is_text_csv_file,
      .read = [](const StageOptions& options,
                 h5::Library&) { return read_text_csv(options.from, options.text, options.split_rule()); }},
     {.name = "text",
      .description = "plain text",
      .order = 6,
      .recognises_file = is_plain_text_file,
      .read = [](const StageOptions& options,
                 h5::Library&) { return read_plain_text(options.from, options.text); }},
     {.name = "synthetic", .description = ""}}};

}  // namespace

std::span<const Format> formats() { return kFormats; }

const Format* find_format(const std::string& name) {
  const auto* found =
      std::ranges::find(kFormats, name, [](const Format& row) { return std::string(row.name); });
  return found == kFormats.end() ? nullptr : found;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

bool has_originals(const std::string& name) {
  const Format* format = find_format(name);
  return format == nullptr || format->read != nullptr;
}

}  // namespace dtrain::data
