#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// The split that a word is, without regard to case: train, training; val, valid, validation, dev, eval,
/// evaluation; test, testing, holdout. `train`, `validation` or `test`.
std::optional<std::string> split_of_word(std::string_view word);

/// The words of a split, in lower case.
std::vector<std::string> words_of_split(std::string_view split);

/// The split that a file's base name begins with: train, val, dev or test, without regard to case.
std::optional<std::string> split_of_name(std::string_view base);

/// The split that the last folder above a file speaks of whose whole name is such a word.
std::optional<std::string> split_of_folders(std::string_view path);

}  // namespace dtrain::data
