#include "data/formats/imdb.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "data/formats/text_files.hpp"
#include "data/import/source_list.hpp"
#include "data/import/text_originals.hpp"
#include "data/text/blanks.hpp"

namespace dtrain::data {
namespace {

/// What a review's name says.
struct Place {
  std::string_view split;  // train or test
  std::string_view folder;
  std::int64_t id = 0;
};

/// The number that `text` begins with; it is cut off. Nothing when there is none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  const auto number = leading_number<std::int64_t>(text);
  if (!number || text.starts_with('-')) return std::nullopt;
  text = number.rest;
  return number.value;
}

/// The last part of a path, which is cut off with its slash.
std::string_view take_last(std::string_view& path) {
  const std::string_view last = base_name(path);
  path.remove_suffix(std::min(path.size(), last.size() + 1));
  return last;
}

std::optional<Place> place_of(std::string_view name) {
  std::string_view file = take_last(name);
  Place place;
  place.folder = take_last(name);
  place.split = take_last(name);
  const auto id = take_number(file);
  if (!id || !file.starts_with('_')) return std::nullopt;
  file.remove_prefix(1);
  if (!take_number(file) || file != ".txt") return std::nullopt;
  place.id = *id;
  const bool known = place.folder == "pos" || place.folder == "neg" || place.folder == "unsup";
  if (!known || (place.split != "train" && place.split != "test")) return std::nullopt;
  return place;
}

/// Line breaks of a page: a space stands for each.
const std::vector<std::string> kPageBreaks = {"<br />"};

struct Review {
  std::int64_t target = 0;
  std::int64_t id = 0;
  std::string text;
};

}  // namespace

bool is_imdb_file(const OriginalFile& file) { return place_of(file.name).has_value(); }

Originals read_imdb(const std::filesystem::path& from, const TextOptions& options, const SplitRule& rule) {
  const auto is_labelled = [](const std::string& name) {
    const auto place = place_of(name);
    return place && place->folder != "unsup";
  };
  std::map<std::string, std::vector<Review>> reviews;
  visit_files(
      from,
      [&](OriginalFile& file) {
        const Place place = *place_of(file.name);
        std::string text = with_spaces(std::move(file.content), kPageBreaks);
        require_text(text, file.origin);
        reviews[std::string(place.split)].push_back(
            {.target = place.folder == "pos" ? 1 : 0, .id = place.id, .text = std::move(text)});
        return true;
      },
      is_labelled);
  if (!reviews.contains("train"))
    throw data_error("holds no reviews train/pos/ID_RATING.txt to train on", from.string(),
                     "give the folder or archive aclImdb as it is published");
  std::map<std::string, ClassifiedTexts> splits;
  for (auto& [split, all] : reviews) {
    std::stable_sort(all.begin(), all.end(), [](const Review& a, const Review& b) {
      return a.target != b.target ? a.target < b.target : a.id < b.id;
    });
    for (Review& review : all) {
      splits[split].texts.push_back(std::move(review.text));
      splits[split].targets.push_back(review.target);
    }
  }
  Originals found = classified_originals(splits, {"neg", "pos"}, options, rule);
  found.tokenizer.value().blanks = kPageBreaks;
  found.sources = source_list(from);
  return found;
}

}  // namespace dtrain::data
