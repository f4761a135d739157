#include "data/unlabelled/new_inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "data/formats/npy.hpp"
#include "data/formats/npz.hpp"
#include "data/formats/own_arrays.hpp"
#include "data/formats/packed_arrays.hpp"
#include "data/shards/shard.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

std::string names_of(const DatasetInfo& trained) {
  std::vector<std::string> names;
  for (const InputInfo& input : trained.inputs) names.push_back(printable(input.name, 50));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Each input's array, in the training's order.
std::vector<std::pair<std::string, std::string>> arrays_of(const DatasetInfo& trained, const fs::path& from,
                                                           const std::string& inputs) {
  const auto given = named_arrays(inputs);
  if (given.empty() && !inputs.empty())
    throw usage_error("names one array, and the training had the inputs " + names_of(trained),
                      "--inputs " + inputs, "write NAME=ARRAY,NAME=ARRAY");
  for (const auto& [name, array] : given) {
    if (std::ranges::find(trained.inputs, name, &InputInfo::name) == trained.inputs.end())
      throw usage_error(
          fmt::format("names an input {}, and the training had {}", printable(name, 50), names_of(trained)),
          "--inputs " + inputs, "use those names");
  }
  std::vector<std::pair<std::string, std::string>> arrays;
  for (const InputInfo& input : trained.inputs) {
    const auto named = std::ranges::find(given, input.name, &std::pair<std::string, std::string>::first);
    if (named == given.end() && !given.empty())
      throw usage_error("leaves out the input " + printable(input.name, 50), "--inputs " + inputs,
                        "name an array for each of " + names_of(trained));
    const bool folder = fs::is_directory(from);
    arrays.emplace_back(input.name, named != given.end() ? named->second
                                    : folder             ? input.name + ".npy"
                                                         : input.name);
  }
  return arrays;
}

std::vector<std::shared_ptr<const Column>> opened(
    const fs::path& from, const std::vector<std::pair<std::string, std::string>>& arrays,
    h5::Library& library) {
  std::vector<std::shared_ptr<const Column>> columns;
  if (fs::is_directory(from)) {
    for (const auto& [name, file] : arrays) columns.push_back(open_npy(from / file, packed_types()));
    return columns;
  }
  StageOptions source;
  source.from = from;
  if (is_hdf5_source(source)) {
    std::vector<ArrayRequest> requests;
    for (const auto& [name, array] : arrays) requests.push_back({array, packed_types()});
    return open_columns(from, requests, library, {.few_reads = true});
  }
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays) names.push_back(array);
  return read_npz_arrays(from, names, packed_types());
}

/// Of the columns from `begin` of float32 rows.
float largest(const Column& rows, std::int64_t begin, std::int64_t width) {
  const auto values = read_whole<float>(rows);
  const std::span<const float> all(values);
  const auto stride = static_cast<std::size_t>(element_count(rows.row_shape()));
  float most = -std::numeric_limits<float>::infinity();
  for (std::size_t at = static_cast<std::size_t>(begin); at < all.size(); at += stride)
    most = std::max(most, std::ranges::max(all.subspan(at, static_cast<std::size_t>(width))));
  return most;
}

/// `most`: of images that were bytes in the training, the largest number that was found.
void require_alike(const InputInfo& found, const InputInfo& trained, float most, const std::string& subject) {
  const auto in_words = [](const InputInfo& input) {
    return fmt::format("[n{}{}]", input.shape.empty() ? "" : ", ", fmt::join(input.shape, ", "));
  };
  if (found.shape != trained.shape)
    throw data_error(
        fmt::format("has the shape {}, and the training's had {}", in_words(found), in_words(trained)),
        subject, "give samples like those of the training");
  if (trained.bytes && !found.bytes && most > 1)
    throw data_error(fmt::format("has images of numbers up to {:.4g}, and the training's were bytes, which "
                                 "become values in 0 to 1",
                                 most),
                     subject, "give bytes, or floats divided by 255");
  if (trained.ids == 0) return;  // whole numbers are real ones, too
  if (found.ids == 0)
    throw data_error("has real numbers, and the training's were ids", subject,
                     "give an array of the training's type");
  if (found.ids > trained.ids)
    throw data_error(
        fmt::format("has the id {}, and the training's were below {}", found.ids - 1, trained.ids), subject,
        "give ids that the training had");
}

}  // namespace

std::shared_ptr<const Column> read_new_inputs(const DatasetInfo& trained, const fs::path& from,
                                              const std::string& inputs, h5::Library& library) {
  const auto arrays = arrays_of(trained, from, inputs);
  PackedRows packed = pack_inputs(arrays, opened(from, arrays, library), from.string());
  if (packed.rows->rows() == 0) throw data_error("holds no samples", from.string(), "give at least one");
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto width = element_count(packed.inputs[i].shape);
    const float most = trained.inputs[i].bytes ? largest(*packed.rows, begin, width) : 0;
    require_alike(packed.inputs[i], trained.inputs[i], most, from.string() + ":" + arrays[i].second);
    begin += width;
  }
  return packed.rows;
}

}  // namespace dtrain::data
