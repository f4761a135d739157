#include "data/formats/npz.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "data/formats/npy.hpp"
#include "data/formats/packed_arrays.hpp"
#include "data/formats/split_names.hpp"
#include "data/import/archive.hpp"
#include "data/import/source_list.hpp"

namespace dtrain::data {
namespace {

using Arrays = std::map<std::string, std::string>;  // contents of the files, by name without .npy

constexpr std::array<const char*, 3> kNamedSplits = {"train", "validation", "test"};

std::string array_names(const Arrays& arrays) {
  std::vector<std::string> names;
  for (const auto& [name, content] : arrays) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Arrays read_members(const std::filesystem::path& file) {
  Arrays arrays;
  visit_files(file, [&](OriginalFile& member) {
    std::string name = member.name;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    if (!arrays.emplace(name, std::move(member.content)).second)
      throw data_error(fmt::format("has two arrays {}", printable(name, 100)), file.string(),
                       "write it again with numpy.savez");
    return true;
  });
  return arrays;
}

/// The array called `name` of a split, such as x_train; empty: there is none.
std::string array_name_in(const Arrays& arrays, const std::string& name, const std::string& split) {
  for (const auto& word : words_of_split(split))
    for (const auto& found : {name + "_" + word, word + "_" + name})
      if (arrays.contains(found)) return found;
  return {};
}

/// Those of `names`, as one of the types `accepted`.
std::vector<std::shared_ptr<const Column>> columns_of(const Arrays& arrays, const std::filesystem::path& file,
                                                      const std::vector<std::string>& names,
                                                      const std::vector<ElementType>& accepted) {
  std::vector<std::shared_ptr<const Column>> columns;
  for (const std::string& name : names) {
    const auto array = arrays.find(name);
    if (array == arrays.end())
      throw data_error("has no array " + name, file.string(), "it has " + array_names(arrays));
    columns.push_back(read_npy(array->second, file.string() + ":" + name, accepted));
  }
  return columns;
}

Originals read_pair(const StageOptions& options, const Arrays& arrays, const std::string& inputs,
                    const std::string& targets) {
  const auto where = [&](const std::string& name) { return options.from.string() + ":" + name; };
  if (const auto named = named_arrays(inputs); !named.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, array] : named) names.push_back(array);
    const auto columns = columns_of(arrays, options.from, names, packed_types());
    const auto y = read_npy(arrays.at(targets), where(targets), {ElementType::int64, ElementType::float32});
    return from_packed(named, columns, y, options.from.string(), where(targets), options.task);
  }
  const auto x = read_npy(arrays.at(inputs), where(inputs), {ElementType::float32, ElementType::uint8});
  const auto y = read_npy(arrays.at(targets), where(targets), {ElementType::int64, ElementType::float32});
  require_same_count(*x, *y, where(inputs), targets);
  return from_arrays(x, y, where(inputs), where(targets), options.task);
}

/// Names the inputs of splits that lie unused beside `inputs`.
void add_remarks(const Arrays& arrays, const std::string& inputs, std::vector<std::string>& remarks) {
  const std::string shown = printable(inputs, 100);
  for (const std::string split : kNamedSplits) {
    const auto unused = array_name_in(arrays, inputs, split);
    if (unused.empty() || unused == inputs) continue;
    remarks.push_back(
        fmt::format("left out: {}, which would be of the split {} if {} were called train_{} or {}_train",
                    printable(unused, 100), split, shown, shown, shown));
  }
}

}  // namespace

std::vector<std::shared_ptr<const Column>> read_npz_arrays(const std::filesystem::path& file,
                                                           const std::vector<std::string>& names,
                                                           const std::vector<ElementType>& accepted) {
  return columns_of(read_members(file), file, names, accepted);
}

Originals read_npz(const StageOptions& options) {
  const Arrays arrays = read_members(options.from);
  const std::string there = fmt::format("the file has {}", array_names(arrays));
  if (options.inputs.empty())
    throw usage_error("is needed for this format", "--inputs", "name one: " + there);
  if (options.targets.empty())
    throw usage_error("is needed for this format", "--targets", "name one: " + there);
  Originals found;
  const bool named = !named_arrays(options.inputs).empty();
  if ((named || arrays.contains(options.inputs)) && arrays.contains(options.targets)) {
    found = read_pair(options, arrays, options.inputs, options.targets);
    if (!named) add_remarks(arrays, options.inputs, found.remarks);
  } else {
    for (const std::string split : kNamedSplits) {
      const auto inputs = array_name_in(arrays, options.inputs, split);
      const auto targets = array_name_in(arrays, options.targets, split);
      if (inputs.empty() && targets.empty() && split != "train") continue;
      if (inputs.empty() || targets.empty())
        throw data_error(
            fmt::format("has no array {} of {}", inputs.empty() ? options.inputs : options.targets,
                        split == "train" ? "that name, and none of train" : split),
            options.from.string(), there);
      Originals part = read_pair(options, arrays, inputs, targets);
      if (split == "train") {
        found = std::move(part);
        continue;
      }
      if (part.task != found.task || part.shape != found.shape || part.targets != found.targets ||
          part.target_shape != found.target_shape)
        throw data_error(fmt::format("has samples of another kind in {} than in train", inputs),
                         options.from.string(), "give arrays that belong together");
      if (part.classes.size() > found.classes.size()) found.classes = part.classes;
      found.splits[split] = std::move(part.splits["train"]);
    }
  }
  found.sources = source_list(options.from);
  return found;
}

}  // namespace dtrain::data
