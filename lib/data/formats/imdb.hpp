#pragma once

#include <cstdint>
#include <filesystem>

#include "data/import/archive.hpp"
#include "data/import/originals.hpp"
#include "data/import/split_plan.hpp"
#include "data/text/text_options.hpp"

namespace dtrain::data {

/// Whether a file's name is that of a review of the Large Movie Review Dataset,
/// `{train,test}/{pos,neg,unsup}/ID_RATING.txt`.
bool is_imdb_file(const OriginalFile& file);

/// The labelled reviews below `from`, a folder or archives of it, as task text_classification with the
/// classes neg and pos, in the order of class and ID. The tag `<br />` counts as a space. Throws data_error
/// naming the file: none to train on, an empty review, one that is not UTF-8.
Originals read_imdb(const std::filesystem::path& from, const TextOptions& options, const SplitRule& rule);

}  // namespace dtrain::data
