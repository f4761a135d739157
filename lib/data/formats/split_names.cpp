#include "data/formats/split_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

namespace dtrain::data {
namespace {

constexpr std::string_view kTrain = "train";
constexpr std::string_view kValidation = "validation";
constexpr std::string_view kTest = "test";

struct SplitWord {
  std::string_view word, split;
};
constexpr std::array<SplitWord, 11> kWords = {{{"train", kTrain},
                                               {"training", kTrain},
                                               {"val", kValidation},
                                               {"valid", kValidation},
                                               {"validation", kValidation},
                                               {"dev", kValidation},
                                               {"eval", kValidation},
                                               {"evaluation", kValidation},
                                               {"test", kTest},
                                               {"testing", kTest},
                                               {"holdout", kTest}}};
constexpr std::array<SplitWord, 4> kBeginnings = {
    {{"train", kTrain}, {"val", kValidation}, {"dev", kValidation}, {"test", kTest}}};

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return lower;
}

}  // namespace

std::optional<std::string> split_of_word(std::string_view word) {
  const auto found = std::ranges::find(kWords, in_lower_case(word), &SplitWord::word);
  return found == kWords.end() ? std::nullopt : std::optional<std::string>(found->split);
}

std::vector<std::string> words_of_split(std::string_view split) {
  std::vector<std::string> words;
  for (const SplitWord& one : kWords)
    if (one.split == split) words.emplace_back(one.word);
  return words;
}

std::optional<std::string> split_of_name(std::string_view base) {
  const std::string name = in_lower_case(base);
  const auto found =
      std::ranges::find_if(kBeginnings, [&](const SplitWord& one) { return name.starts_with(one.word); });
  return found == kBeginnings.end() ? std::nullopt : std::optional<std::string>(found->split);
}

std::optional<std::string> split_of_folders(std::string_view path) {
  std::optional<std::string> split;
  for (const auto& part : std::filesystem::path(path).parent_path()) {
    if (auto found = split_of_word(part.string())) split = std::move(found);
  }
  return split;
}

}  // namespace dtrain::data
