#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/exported/graph.hpp"

namespace dtrain::models::exported {

/// A node that runs.
struct Step {
  std::size_t node = 0;
  c10::OperatorHandle handle;
  /// What it writes to is handed to it as a copy, which takes the place of the original: others still hold
  /// that one. `if_leaf`: only where it is a leaf of the autograd graph, which must not be written to.
  enum class Copies { never, if_leaf, always } copies = Copies::never;

  // What other nodes of the program it computes as well (fusion.hpp).
  bool relu_follows = false;             ///< The ReLU of its result.
  std::optional<ValueId> residual = {};  ///< Of batch_norm: what is added to its result, before that ReLU.
  bool overwrites_input = false;         ///< Of an element-wise function: nothing else uses its input.
  /// Of embedding and embedding_bag: the mean over each text's real words. The texts, ids [n, T].
  std::optional<ValueId> texts = {};

  bool is_written_later = false;  ///< Its result shares memory with its input, and one of them is written to.
  /// Its result lies in memory as in PyTorch: what is a view of it there is to be one here.
  bool lies_in_order = false;
};

/// All tensors that a step reads: its node's arguments, and what fusion has added.
std::vector<ValueId> tensors_read(const Step& step, const Graph& graph);

/// What lives between two runs: a tensor, or a symbol that no tensor there shows.
struct Flowing {
  std::optional<ValueId> value;
  std::string symbol;
};

/// Nodes that make one layer.
struct Run {
  std::string name;  ///< Path of the module.
  std::vector<Step> steps;
  std::vector<Flowing> inputs;  ///< What comes from the run before: of the first one, what the user gives.
  std::vector<ValueId> cloned;  ///< Inputs that it writes to through views: it works on copies.
};

/// Which nodes run, in which runs, and what flows between these.
struct Plan {
  /// For each value, the one that is the same tensor: what is written in place has its input's.
  std::vector<ValueId> same;
  std::vector<Run> runs;
  std::vector<ValueId> user_inputs;
  ValueId output = 0;

  std::set<ValueId> trained;  ///< Parameters that a gradient of the output reaches.
  /// Values through which such a gradient passes. No other is to ask for one: where layers are cut apart all
  /// that flows between them could.
  std::set<ValueId> carries;

  /// Counters of BatchNorm, whose `add_` is left out.
  std::vector<ValueId> counters;
};

/// Nodes are cut into runs by the module that made them: those of a module without modules of its own are
/// one run; what lies between two such modules belongs to the first. A run is never cut where a view of a
/// tensor is still to be written to. Nodes that the first output does not depend on are left out. Throws
/// Error (exit code 2) for operators that dtrain does not train, and for buffers and parameters that the
/// program writes to.
Plan make_plan(const Graph& graph);

}  // namespace dtrain::models::exported
