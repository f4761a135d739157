#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/exported/slicing/attentions.hpp"
#include "models/exported/slicing/linear_pairs.hpp"

namespace dtrain::models::exported {

/// What of a program the ranks of a tensor axis share; all else is on each of them. No linear layer is part
/// of two.
struct Cuts {
  /// An attention or a pair with fewer heads or features than there are ranks.
  struct Narrow {
    std::string name;
    std::int64_t parts = 0;
  };
  std::vector<CutAttention> attentions;
  std::vector<LinearPair> pairs;
  /// What several of their linear layers are given and nothing else uses, with the first of them: there it
  /// enters the slices for all.
  std::map<ValueId, Place> shared_inputs;
  std::vector<std::string> whole;  ///< Attentions that are written in a way that is not known.
  std::vector<Narrow> narrow;      ///< These stay whole as well.
  bool empty() const { return attentions.empty() && pairs.empty(); }
};

Cuts find_cuts(const PlannedProgram& planned, std::int64_t ranks);

/// `2 attentions are cut by heads ...`, for the log. Not of none.
std::string cuts_in_words(const Cuts& cuts);

}  // namespace dtrain::models::exported
