#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "models/exported/operations/operation.hpp"
#include "models/exported/planning/planned_program.hpp"
#include "models/exported/samples/sample_place.hpp"

namespace dtrain::models::exported {

/// Why one pass of many samples does not tell the gradient of each, for a run of a program; empty: it does.
/// Each of its operators is looked at: it must be known to compute each sample from that sample alone, along
/// the dim that counts samples, and each use of a parameter must be one of SampleTap's. What is not known is
/// refused.
std::string sample_obstacle_of(const PlannedProgram& planned, std::size_t run);

/// Where a value of a run without an obstacle has its samples; nothing: it has none.
std::optional<SamplePlace> place_of_samples(const PlannedProgram& planned, std::size_t run, ValueId value);

/// The operation of a step of `run` that uses parameters, which goes through the tap where one is open, and
/// is `operation` elsewhere. `operation` itself where the step uses no parameter in a way that has a rule.
/// `planned` outlives it.
std::unique_ptr<Operation> tapped_operation(const PlannedProgram& planned, std::size_t run, const Step& step,
                                            const Scope& scope, std::unique_ptr<Operation> operation);

}  // namespace dtrain::models::exported
