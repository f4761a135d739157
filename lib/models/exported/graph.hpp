#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/exported/size_expression.hpp"

namespace dtrain::models::exported {

/// Index of a value in its graph.
using ValueId = std::size_t;

struct TensorFacts {
  at::ScalarType type = at::kFloat;
  std::vector<SizeExpression> sizes;
  bool lies_in_order = true;  ///< In PyTorch: each dim behind the one before. Known of three and more.
};

/// What a name of the program stands for: a tensor, or a number that follows from the inputs' sizes.
struct Value {
  std::string name;
  std::optional<TensorFacts> tensor;
  std::optional<SizeExpression> number;
};

/// A whole number, or the value that it is.
struct Size {
  std::int64_t number = 0;
  std::optional<ValueId> value;
};

/// What a node is given for one argument of its operator.
struct Argument {
  enum class Kind {
    none,
    tensor,   ///< values[0]
    tensors,  ///< values, some of which may be none
    size,     ///< sizes[0]
    sizes,
    real,  ///< reals[0]
    reals,
    number,   ///< sizes[0].value: a real number that follows from sizes
    boolean,  ///< booleans[0]
    booleans,
    text,
    type,    ///< `code`, a c10::ScalarType
    format,  ///< `code`, a c10::MemoryFormat
    layout,
    device,
    other  ///< `text` names it: dtrain does not take it.
  };
  Kind kind = Kind::none;
  std::vector<std::optional<ValueId>> values;
  std::vector<Size> sizes;
  std::vector<double> reals;
  std::vector<bool> booleans;
  std::string text;
  int code = 0;
};

/// What a node gives: tensors one by one or as a list, or numbers.
struct Output {
  enum class Kind { none, tensor, tensors, number };
  Kind kind = Kind::none;
  std::vector<ValueId> values;
};

/// A call of an operator.
struct Node {
  std::string target;  ///< `torch.ops.aten.conv2d.default`
  std::string name;
  std::vector<std::pair<std::string, Argument>> inputs;
  std::vector<Output> outputs;
  std::string module;  ///< Path of the innermost module that made it, `features.0`; empty: the outermost.
  std::string module_type;  ///< Its class.
  std::string line;         ///< `net.py:11: x = self.conv(x)`; empty: not known.

  const Argument* find(std::string_view argument) const;
  /// `aten.rand.default in the module encoder (net.py:11: ...)`, for messages.
  std::string where() const;
};

/// What a program is given.
struct GraphInput {
  enum class Kind { user, parameter, buffer, constant };
  Kind kind = Kind::user;
  ValueId value = 0;
  std::string name;        ///< In the module's state_dict, or of the constant; of a user's input its own.
  bool persistent = true;  ///< Of a buffer: part of the state_dict.
};

/// The values of a size for which a program was exported.
struct SizeRange {
  std::int64_t least = 0;
  std::optional<std::int64_t> most;  ///< Nothing: any.
};

/// A program's nodes in the order in which they run, plain values without its weights.
struct Graph {
  std::vector<Value> values;
  std::vector<GraphInput> inputs;
  std::vector<Node> nodes;
  std::vector<ValueId> outputs;  ///< Tensors, the user's; others are left out.
  std::string hash;              ///< SHA-256 of the nodes, inputs and outputs, without where they came from.

  // For which sizes it computes what its module does; not part of the hash.
  std::map<std::string, SizeRange> ranges;  ///< By symbol.
  std::vector<std::string> conditions;  ///< Guards and assertions as they are written: size_condition.hpp.

  const Value& operator[](ValueId id) const { return values.at(id); }
  /// Tensors of any input of this kind, in their order.
  std::vector<const GraphInput*> inputs_of(GraphInput::Kind kind) const;
};

/// From `model.json` of schema 8. Each value that a node uses is defined before. Throws Error: without a code
/// for what is damaged, with exit code 2 for what cannot be trained.
Graph parse_graph(std::string_view json);

/// From the number that the schema has for a type of elements.
at::ScalarType scalar_type_of(std::int64_t code);

}  // namespace dtrain::models::exported
