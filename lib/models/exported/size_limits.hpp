#pragma once

#include <string>
#include <vector>

#include "models/exported/planning/planned_program.hpp"
#include "models/model.hpp"

namespace dtrain::models::exported {

/// Throws Error (exit code 2) where an input of the program takes some numbers of samples only: a batch of a
/// run has any.
void require_any_batch(const PlannedProgram& planned);

/// What a run may do that the program was not exported for, in a sentence; empty where every batch of the
/// dataset keeps to what PyTorch took for true of the sizes, or where jobs/export_model.py has checked that.
/// `given`: shapes of the program's inputs for some samples of the dataset.
std::string remark_on_sizes(const PlannedProgram& planned, const DatasetFacts& facts,
                            const std::vector<Shape>& given);

}  // namespace dtrain::models::exported
