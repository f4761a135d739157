#pragma once

#include "data/import/originals.hpp"
#include "data/import/stage.hpp"

namespace dtrain::data {

/// Recognises the format of options.from by its content (or takes options.format) and reads it. Large arrays
/// stay in their files until they are copied. Throws usage_error for missing --inputs or --targets,
/// data_error for missing, unknown or damaged files.
Originals read_originals(const StageOptions& options, h5::Library& library);

}  // namespace dtrain::data
