#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "task.hpp"

namespace dtrain::app {

/// A word behind `dtrain`. `understand` reads the rest of the command line without MPI and throws Error (exit
/// code 2).
struct Command {
  std::string name;
  std::string summary;
  Task (*understand)(const Words& words, const Environment& environment);
};

const std::vector<Command>& commands();

// One file each.
Task train_command(const Words& words, const Environment& environment);
Task stage_command(const Words& words, const Environment& environment);
Task evaluate_command(const Words& words, const Environment& environment);
Task predict_command(const Words& words, const Environment& environment);
Task generate_command(const Words& words, const Environment& environment);
Task export_command(const Words& words, const Environment& environment);
Task report_command(const Words& words, const Environment& environment);
Task plan_command(const Words& words, const Environment& environment);
Task privacy_command(const Words& words, const Environment& environment);
Task topology_command(const Words& words, const Environment& environment);
Task doctor_command(const Words& words, const Environment& environment);

/// The command that argv names, `train` when it names none. Throws Error (exit code 2).
Task understand(int argc, const char* const* argv, const Environment& environment);

}  // namespace dtrain::app
