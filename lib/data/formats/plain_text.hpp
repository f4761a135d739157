#pragma once

#include <filesystem>

#include "data/import/archive.hpp"
#include "data/import/originals.hpp"
#include "data/text/text_options.hpp"

namespace dtrain::data {

/// Whether a file is plain text: named `.txt`, and what is seen of it is UTF-8 without control characters but
/// for white space.
bool is_plain_text_file(const OriginalFile& file);

/// One file of running text, or one per split (`train*`, `val*`, `test*`), as task language_modelling.
/// Without a validation file the last tenth of the characters becomes that split. Throws data_error naming
/// the file: not UTF-8, blank, shorter than a block, several files that are not splits.
Originals read_plain_text(const std::filesystem::path& from, const TextOptions& options);

}  // namespace dtrain::data
