#include "models/exported/graph.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace dtrain::models::exported {

at::ScalarType scalar_type_of(std::int64_t code) {
  using enum at::ScalarType;
  switch (code) {
    case 1:
      return Byte;
    case 2:
      return Char;
    case 3:
      return Short;
    case 4:
      return Int;
    case 5:
      return Long;
    case 6:
      return Half;
    case 7:
      return Float;
    case 8:
      return Double;
    case 12:
      return Bool;
    case 13:
      return BFloat16;
    default:
      break;
  }
  const bool complex = code >= 9 && code <= 11;
  throw Error(
      fmt::format("has a tensor of a type that dtrain does not train ({})",
                  complex ? "complex numbers" : fmt::format("number {} of the schema", code)),
      {.advice = "use float32, float16, bfloat16, float64, whole numbers and bool", .code = ExitCode::usage});
}

const Argument* Node::find(std::string_view argument) const {
  const auto place = std::ranges::find(inputs, argument, &std::pair<std::string, Argument>::first);
  return place == inputs.end() ? nullptr : &place->second;
}

std::string Node::where() const {
  std::string text = target.empty()
                         ? "a node without an operator"
                         : printable(target.starts_with("torch.ops.") ? target.substr(10) : target, 100);
  text += module.empty() ? " in the outermost module" : " in the module " + printable(module, 100);
  if (!line.empty()) text += " (" + printable(line, 160) + ")";
  return text;
}

std::vector<const GraphInput*> Graph::inputs_of(GraphInput::Kind kind) const {
  std::vector<const GraphInput*> found;
  for (const GraphInput& input : inputs) {
    if (input.kind == kind) found.push_back(&input);
  }
  return found;
}

}  // namespace dtrain::models::exported
