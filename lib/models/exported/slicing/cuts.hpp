#pragma once

#include <string>
#include <vector>

#include "models/exported/slicing/attentions.hpp"
#include "models/exported/slicing/linear_pairs.hpp"

namespace dtrain::models::exported {

/// What of a program the ranks of a tensor axis share; all else is on each of them. No linear layer is part
/// of two.
struct Cuts {
  std::vector<CutAttention> attentions;
  std::vector<LinearPair> pairs;
  std::vector<std::string> whole;  ///< Attentions that are written in a way that is not known.
  bool empty() const { return attentions.empty() && pairs.empty(); }
};

Cuts find_cuts(const PlannedProgram& planned);

/// `2 attentions are cut by heads ...`, for the log. Not of none.
std::string cuts_in_words(const Cuts& cuts);

}  // namespace dtrain::models::exported
