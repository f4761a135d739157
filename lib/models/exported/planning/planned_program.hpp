#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/exported/planning/plan.hpp"
#include "models/exported/program.hpp"

namespace dtrain::models::exported {

/// A program with the plan of how it runs. Does not move.
struct PlannedProgram {
  Program program;
  Plan plan;
  std::vector<bool> kept;   ///< By value: kept_values().
  bool in_training = true;  ///< It was exported in training mode.
  enum class Dropout { as_exported, off } dropout;

  PlannedProgram(const std::string& file, Dropout how);
  PlannedProgram(const PlannedProgram&) = delete;
  PlannedProgram& operator=(const PlannedProgram&) = delete;

  /// Null for what a node made.
  const GraphInput* input_of(ValueId value) const;
  /// How often the steps use a parameter or buffer of this name, tied parameters together.
  std::size_t uses_of(const std::string& name) const;
  /// Whether a step uses a parameter of this name otherwise than by detach(), which gives it no gradient.
  bool is_trained(const std::string& name) const { return trained_.contains(name); }
  /// Weights of images' convolutions, beside BatchNorm or transposed ones, lie with the channels innermost:
  /// it is faster.
  bool is_channels_last(ValueId value) const { return channels_last_.contains(value); }

 private:
  void count_uses();
  std::map<ValueId, const GraphInput*> inputs_;
  std::map<std::string, std::size_t> uses_;
  std::set<std::string> trained_;
  std::set<ValueId> channels_last_;
};

}  // namespace dtrain::models::exported
