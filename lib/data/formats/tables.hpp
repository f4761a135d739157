#pragma once

#include "data/import/archive.hpp"
#include "data/import/originals.hpp"
#include "data/import/stage.hpp"

namespace dtrain::data {

/// Whether a file is a table of text: named .csv or .tsv, or rows of as many cells each.
bool is_table_file(const OriginalFile& start);

/// Tables of comma-separated values, with or without header (options.target, ignore, site, standardize,
/// task). A single file, or those of a folder or archive named .csv, .tsv or .data: train*, validation* or
/// val*, and test* are the splits; without such names they count as one table, and each file is a site of its
/// own unless options.site names a column. Inputs: see inputs_of. The target is classes when it is text, or
/// has at most 20 different values, all whole; otherwise it is a regression's. Gaps are filled, and numbers
/// standardised, when it is known which rows are train's. Throws data_error (a ragged row with file and line,
/// a row without target, no rows) and usage_error (a column there is not).
Originals read_tables(const StageOptions& options);

}  // namespace dtrain::data
