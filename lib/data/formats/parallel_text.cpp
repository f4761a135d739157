#include "data/formats/parallel_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/formats/split_names.hpp"
#include "data/formats/text_files.hpp"
#include "data/import/source_list.hpp"
#include "data/import/text_originals.hpp"

namespace dtrain::data {
namespace {

/// A file's name without its suffix, and the language that the suffix names; empty for other files.
struct Named {
  std::string_view stem;
  std::string_view language;
};

Named parts_of(std::string_view name) {
  constexpr std::array<std::string_view, 12> kOther = {"txt", "csv", "tsv", "npy", "bin", "md",
                                                       "py",  "sh",  "log", "tar", "gz",  "xz"};
  const std::string_view base = base_name(name);
  const std::size_t dot = base.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  const std::string_view suffix = base.substr(dot + 1);
  const bool letters = std::all_of(suffix.begin(), suffix.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (suffix.size() < 2 || suffix.size() > 3 || !letters ||
      std::find(kOther.begin(), kOther.end(), suffix) != kOther.end())
    return {};
  return {base.substr(0, dot), suffix};
}

using Languages = std::pair<std::string, std::string>;

std::string list_of(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

/// Source and target. `there`: the languages of the training text.
Languages choose(const std::string& wanted, const std::set<std::string>& there, const std::string& from) {
  if (wanted.empty()) {
    if (there.contains("de") && there.contains("en")) return {"de", "en"};
    if (there.size() == 2) return {*there.begin(), *there.rbegin()};
    if (there.size() < 2)
      throw data_error("holds training text in " + (there.empty() ? "no language" : list_of(there) + " only"),
                       from, "give both sides of each pair, such as train.de and train.en");
    throw usage_error("is needed: there are " + list_of(there), "--languages",
                      "name source and target, such as " + *there.begin() + "-" + *there.rbegin());
  }
  const std::size_t dash = wanted.find('-');
  Languages chosen = {wanted.substr(0, dash), dash == std::string::npos ? "" : wanted.substr(dash + 1)};
  if (!there.contains(chosen.first) || !there.contains(chosen.second) || chosen.first == chosen.second)
    throw usage_error("is no pair of the languages there are: " + list_of(there), "--languages " + wanted,
                      "name source and target, such as de-en");
  return chosen;
}

}  // namespace

bool is_parallel_file(const OriginalFile& file) {
  const Named parts = parts_of(file.name);
  return !parts.language.empty() && split_of_name(parts.stem).has_value();
}

Originals read_parallel_text(const std::filesystem::path& from, const TextOptions& options,
                             const SplitRule& rule) {
  std::set<std::string> there;
  const auto is_side = [](const std::string& name) {
    const Named parts = parts_of(name);
    return !parts.language.empty() && split_of_name(parts.stem).has_value();
  };
  std::map<std::string, std::map<std::string, OriginalFile>> stems;  // by stem and language
  visit_files(
      from,
      [&](OriginalFile& file) {
        const std::string name = file.name;  // the parts must outlive the move
        const Named parts = parts_of(name);
        if (split_of_name(parts.stem) == "train") there.emplace(parts.language);
        auto& languages = stems[std::string(parts.stem)];
        if (const auto other = languages.find(std::string(parts.language)); other != languages.end())
          throw data_error("has the name of " + other->second.origin, file.origin,
                           "give the folder of one corpus, or append the lines of the one to the other");
        languages[std::string(parts.language)] = std::move(file);
        return true;
      },
      is_side);
  const auto [source, target] = choose(options.languages, there, from.string());

  std::map<std::string, TextPairs> splits;
  std::vector<std::string> left_out;  // stems
  for (const auto& [stem, languages] : stems) {
    const std::string split = *split_of_name(stem);
    if (!languages.contains(source) && !languages.contains(target)) continue;
    if (splits.contains(split)) {
      left_out.push_back(stem);
      continue;
    }
    for (const std::string& language : {source, target})
      if (!languages.contains(language))
        throw data_error("has no " + stem + "." + language + " beside the other language's " + stem,
                         from.string(), "put it there, or remove its partner");
    const OriginalFile& from_file = languages.at(source);
    const OriginalFile& to_file = languages.at(target);
    TextPairs& pairs = splits[split];
    pairs = {lines_of(from_file), lines_of(to_file)};
    if (pairs.sources.size() != pairs.targets.size())
      throw data_error("has " + std::to_string(pairs.sources.size()) + " lines but " + to_file.origin +
                           " has " + std::to_string(pairs.targets.size()),
                       from_file.origin, "give files whose lines are each other's translations");
  }
  Originals found = translation_originals(splits, options, rule);
  for (const std::string& stem : left_out)
    found.remarks.push_back(
        fmt::format("left out: {}.{} and {}.{}, since another pair of files is the split {} already: "
                    "append their lines to its files, or move them away",
                    stem, source, stem, target, *split_of_name(stem)));
  found.sources = source_list(from);
  return found;
}

}  // namespace dtrain::data
