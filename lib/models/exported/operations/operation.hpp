#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "models/exported/graph.hpp"
#include "models/layer.hpp"

namespace dtrain::models::exported {

/// What the operations of one run work on, in one forward pass.
struct Workspace {
  std::vector<at::Tensor> tensors;  ///< By place: see Places.
  const Symbols& symbols;
  const Context& context;
  at::ScalarType type;  ///< What it computes in, instead of the program's own floating type.
  at::Device device;
};

/// A step of a run, ready to be done any number of times.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void run(Workspace& work) = 0;
  /// Adds what its kernels take beside their results: Cost::step_bytes, factors. `shape_of`: of a tensor.
  virtual void add_cost(Cost& /*cost*/, const std::function<Shape(ValueId)>& /*shape_of*/) const {}
};

/// The type that a tensor of the program has in a run which computes in `type`: the program's floating type,
/// `own`, becomes it, and in double so does each floating type.
inline at::ScalarType type_in_run(at::ScalarType wanted, at::ScalarType own, at::ScalarType type) {
  if (!at::isFloatingType(wanted)) return wanted;
  return wanted == own || type == at::kDouble ? type : wanted;
}

/// What a layer under construction knows about a value, for those that make its operations.
struct Scope {
  const Graph& graph;
  at::ScalarType type;                           ///< The program's floating type.
  bool drops = true;                             ///< False: dropout does nothing.
  std::function<std::size_t(ValueId)> place_of;  ///< Of a value in Workspace::tensors.
  /// The parameter that a value is, where no other node uses it and the layer owns it: its gradient may be
  /// written by dtrain's own kernels. Else null.
  std::function<Parameter*(ValueId)> own_parameter;
  std::function<Parameter*(ValueId)> parameter;  ///< The same for any parameter.
  std::function<bool(ValueId)> carries;          ///< Whether a gradient passes through a value.
  std::function<Buffer*(ValueId)> buffer;        ///< The layer's buffer that a value is, or null.
};

}  // namespace dtrain::models::exported
