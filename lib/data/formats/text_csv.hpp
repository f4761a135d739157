#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/import/archive.hpp"
#include "data/import/originals.hpp"
#include "data/import/split_plan.hpp"
#include "data/text/text_options.hpp"

namespace dtrain::data {

/// Whether a file is CSV whose first row is a class number and then text, as AG News has it: a field of
/// several words among the others, and no other number.
bool is_text_csv_file(const OriginalFile& file);

/// Whether all rows of a CSV file are so, whatever their texts: one may be a single word, or a number beside
/// others that are none.
bool has_text_rows(const OriginalFile& file);

/// The texts of such a file, one per row, as they are and without its classes. Throws data_error as
/// read_text_csv().
std::vector<std::string> texts_of_csv(const OriginalFile& file);

/// Rows `class,text...` without a header, in `train*.csv`, `val*.csv`, `test*.csv`, or in one file of any
/// name. The text is the fields after the class, with a space between them; a backslash counts as a space
/// (AG News breaks its lines by one), and so does \n where train has it for most of its backslashes. Classes
/// are the distinct numbers in train, ascending, or, with a file `classes.txt` beside (a name a line), 1 to
/// their count (0 to count - 1 where train has a 0). Throws data_error naming file and line: a row of another
/// length than the first, a class that is no number or outside the classes, an empty text, text that is not
/// UTF-8.
Originals read_text_csv(const std::filesystem::path& from, const TextOptions& options, const SplitRule& rule);

}  // namespace dtrain::data
