#pragma once

#include <cstdint>
#include <filesystem>

#include "data/import/archive.hpp"
#include "data/import/originals.hpp"
#include "data/import/split_plan.hpp"
#include "data/text/text_options.hpp"

namespace dtrain::data {

/// Whether a file's name is that of a split in one language, such as `train.de`: the suffix is two or
/// three small letters that name no other kind of file.
bool is_parallel_file(const OriginalFile& file);

/// Line n of a file in one language is the translation of line n in the other's: `train.de`, `train.en`, the
/// same for validation (`val`, `valid`, `dev`) and test, each packed or not. Of several test sets the first
/// by name is taken. Languages: options.languages, else de to en where there are both, else the only two, in
/// the order of their names. Throws usage_error for languages that are not there or not clear, data_error
/// naming the file: unequal counts of lines, a blank line, text that is not UTF-8.
Originals read_parallel_text(const std::filesystem::path& from, const TextOptions& options,
                             const SplitRule& rule);

}  // namespace dtrain::data
