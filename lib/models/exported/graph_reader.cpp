#include "models/exported/graph.hpp"

#include <c10/core/MemoryFormat.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/printable.hpp"
#include "core/sha256.hpp"
#include "core/whole_number.hpp"
#include "models/exported/node_origin.hpp"

namespace dtrain::models::exported {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kSchemaMajor = 8;

Error damaged(const std::string& problem) { return {problem, {}}; }

Error refused(const std::string& problem, const std::string& advice) {
  return {problem, {.advice = advice, .code = ExitCode::usage}};
}

/// The one alternative of a union: its name and value.
std::pair<std::string, const Json*> alternative(const Json& given) {
  if (!given.is_object() || given.size() != 1) throw damaged("has an argument of no kind or of several");
  return {given.begin().key(), &given.begin().value()};
}

/// JSON has no infinity: it is written as text.
double real_of(const Json& given) {
  if (given.is_string()) {
    const auto& text = given.get_ref<const std::string&>();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  return given.get<double>();
}

int memory_format_of(std::int64_t code) {
  switch (code) {
    case 1:
      return static_cast<int>(at::MemoryFormat::Contiguous);
    case 2:
      return static_cast<int>(at::MemoryFormat::ChannelsLast);
    case 3:
      return static_cast<int>(at::MemoryFormat::ChannelsLast3d);
    case 4:
      return static_cast<int>(at::MemoryFormat::Preserve);
    default:
      throw damaged(fmt::format("has a memory format {}", code));
  }
}

SizeExpression expression_of(const Json& given, const char* plain) {
  const auto [kind, value] = alternative(given);
  if (kind == plain)
    return value->is_boolean() ? SizeExpression(value->get<bool>() ? 1 : 0)
                               : SizeExpression(required_whole_number(*value));
  if (kind != "as_expr") throw damaged("has a size that is neither a number nor an expression");
  return SizeExpression::parse(value->at("expr_str").get_ref<const std::string&>());
}

/// Such as [N, C, H, W]. What lies in front of an unknown size counts as in order.
bool lies_in_order(const Json& meta) {
  const Json& strides = meta.at("strides");
  std::int64_t wanted = 1;
  for (std::size_t dim = strides.size(); dim-- > 1;) {
    const auto [size_kind, size] = alternative(meta.at("sizes").at(dim));
    const auto [stride_kind, stride] = alternative(strides.at(dim));
    if (stride_kind != "as_int") return true;
    const auto length = size_kind == "as_int" ? std::optional(required_whole_number(*size)) : std::nullopt;
    if (length != 1 && required_whole_number(*stride) != wanted) return false;
    if (!length) return true;
    if (__builtin_mul_overflow(wanted, *length, &wanted)) return true;
  }
  return true;
}

/// A limit of a size; nothing where it is as large as PyTorch's infinity.
std::optional<std::int64_t> limit_of(const Json& range, const char* name) {
  const auto place = range.find(name);
  if (place == range.end() || place->is_null()) return std::nullopt;
  const auto limit = required_whole_number(*place);
  constexpr std::int64_t kInfinite = std::int64_t{1} << 31;
  return limit >= kInfinite ? std::nullopt : std::optional(limit);
}

/// What a node asserts of sizes. PyTorch writes it as
/// `Runtime assertion failed for expression Eq(Mod(s77, 2), 0) on node 'eq_1'`.
std::string asserted(const Node& node) {
  const auto* message = node.find("assert_msg");
  if (message == nullptr) return "an assertion";
  constexpr std::string_view kBefore = "expression ";
  const std::string& text = message->text;
  const auto before = text.find(kBefore);
  if (before == std::string::npos) return text;
  const auto begin = before + kBefore.size();
  return text.substr(begin, text.rfind(" on node") - begin);
}

class Reading {
 public:
  explicit Reading(const Json& model) : module_(model.at("graph_module")) {}

  Graph graph() {
    const Json& graph = module_.at("graph");
    for (const auto& [name, meta] : graph.at("tensor_values").items()) add_tensor(name, meta);
    for (const auto& [name, size] : graph.at("sym_int_values").items())
      add_number(name, expression_of(size, "as_int"));
    for (const auto& [name, value] : graph.at("sym_bool_values").items()) add_unread(name, value, "as_bool");
    if (graph.contains("sym_float_values")) {
      for (const auto& [name, value] : graph.at("sym_float_values").items()) add_real(name, value);
    }
    read_inputs();
    for (const Json& node : graph.at("nodes")) read_node(node);
    read_outputs();
    for (const Node& node : graph_.nodes) {
      if (node.target.starts_with("torch.ops.aten._assert_scalar."))
        graph_.conditions.push_back(asserted(node));
    }
    graph_.hash = hash_of(graph);
    return std::move(graph_);
  }

 private:
  void add(Value value) {
    if (!ids_.emplace(value.name, graph_.values.size()).second)
      throw damaged("has two values of one name, " + printable(value.name, 100));
    graph_.values.push_back(std::move(value));
    defined_.push_back(false);
  }

  void add_tensor(const std::string& name, const Json& meta) {
    TensorFacts facts{.type = scalar_type_of(required_whole_number(meta.at("dtype")))};
    for (const Json& size : meta.at("sizes")) facts.sizes.push_back(expression_of(size, "as_int"));
    if (facts.sizes.size() > 16) throw damaged("has a tensor of more than 16 dims");
    if (facts.sizes.size() >= 3 && meta.at("strides").size() == facts.sizes.size())
      facts.lies_in_order = lies_in_order(meta);
    add({.name = name, .tensor = std::move(facts)});
  }

  void add_number(const std::string& name, SizeExpression number) {
    add({.name = name, .number = std::move(number)});
  }

  /// A condition only matters where it is used; assertions about sizes are the most.
  void add_unread(const std::string& name, const Json& given, const char* plain) {
    const auto [kind, value] = alternative(given);
    if (kind == plain) return add_number(name, expression_of(given, plain));
    add_number(name, SizeExpression::parse("Symbol('a condition')"));
  }

  void add_real(const std::string& name, const Json& given) {
    const auto [kind, value] = alternative(given);
    if (kind == "as_float") {
      add_number(name, SizeExpression::parse(fmt::format("Float('{}')", real_of(*value))));
    } else {
      add_number(name, expression_of(given, "as_float"));
    }
  }

  void define(ValueId id) {
    if (defined_[id]) throw damaged("defines " + printable(graph_.values[id].name, 100) + " twice");
    defined_[id] = true;
  }

  ValueId value_of(const Json& name) const {
    const auto place = ids_.find(name.get_ref<const std::string&>());
    if (place == ids_.end())
      throw damaged("says nothing of the value " + printable(name.get<std::string>(), 100));
    return place->second;
  }

  ValueId tensor_of(const Json& argument) const {
    const auto id = value_of(argument.at("name"));
    if (!graph_.values[id].tensor)
      throw damaged(printable(graph_.values[id].name, 100) + " should be a tensor");
    return id;
  }

  ValueId used(ValueId id) const {
    if (!defined_[id]) throw damaged("uses " + printable(graph_.values[id].name, 100) + " before it is made");
    return id;
  }

  ValueId used_number(const Json& name) const {
    const auto id = used(value_of(name));
    if (!graph_.values[id].number)
      throw damaged(printable(graph_.values[id].name, 100) + " should be a number");
    return id;
  }

  Size size_of(const Json& given) const {
    if (given.is_number_integer()) return {.number = required_whole_number(given)};
    const auto [kind, value] = alternative(given);
    if (kind == "as_int") return {.number = required_whole_number(*value)};
    if (kind == "as_name") return {.value = used_number(*value)};
    throw damaged("has a size of kind " + printable(kind, 50));
  }

  Argument argument_of(const Json& given) const {
    using Kind = Argument::Kind;
    const auto [kind, value] = alternative(given);
    const Json& v = *value;
    Argument made;
    if (kind == "as_none") return made;
    if (kind == "as_tensor") {
      made.kind = Kind::tensor;
      made.values = {used(tensor_of(v))};
    } else if (kind == "as_optional_tensor") {
      return v.contains("as_none") ? made : argument_of(v);
    } else if (kind == "as_tensors" || kind == "as_optional_tensors") {
      made.kind = Kind::tensors;
      for (const Json& one : v) {
        if (kind == "as_tensors") {
          made.values.emplace_back(used(tensor_of(one)));
        } else if (one.contains("as_none")) {
          made.values.emplace_back(std::nullopt);
        } else {
          made.values.emplace_back(used(tensor_of(one.at("as_tensor"))));
        }
      }
    } else if (kind == "as_int" || kind == "as_sym_int") {
      made.kind = Kind::size;
      made.sizes = {size_of(v)};
    } else if (kind == "as_ints" || kind == "as_sym_ints") {
      made.kind = Kind::sizes;
      for (const Json& one : v) made.sizes.push_back(size_of(one));
    } else if (kind == "as_float") {
      made.kind = Kind::real;
      made.reals = {real_of(v)};
    } else if (kind == "as_floats") {
      made.kind = Kind::reals;
      for (const Json& one : v) made.reals.push_back(real_of(one));
    } else if (kind == "as_sym_float") {
      if (v.contains("as_float")) {
        made.kind = Kind::real;
        made.reals = {real_of(v.at("as_float"))};
      } else {
        made.kind = Kind::number;
        made.sizes = {{.value = used_number(v.at("as_name"))}};
      }
    } else if (kind == "as_bool") {
      made.kind = Kind::boolean;
      made.booleans = {v.get<bool>()};
    } else if (kind == "as_bools") {
      made.kind = Kind::booleans;
      for (const Json& one : v) made.booleans.push_back(one.get<bool>());
    } else if (kind == "as_string") {
      made.kind = Kind::text;
      made.text = v.get<std::string>();
    } else if (kind == "as_scalar_type") {
      made.kind = Kind::type;
      made.code = static_cast<int>(scalar_type_of(required_whole_number(v)));
    } else if (kind == "as_memory_format") {
      made.kind = Kind::format;
      made.code = memory_format_of(required_whole_number(v));
    } else if (kind == "as_layout") {
      made.kind = Kind::layout;
    } else if (kind == "as_device") {
      made.kind = Kind::device;
    } else {
      made.kind = Kind::other;
      made.text = kind;
    }
    return made;
  }

  Output output_of(const Json& given) {
    const auto [kind, value] = alternative(given);
    const Json& v = *value;
    Output made;
    if (kind == "as_none") return made;
    if (kind == "as_tensor") {
      made = {Output::Kind::tensor, {tensor_of(v)}};
    } else if (kind == "as_tensors") {
      made.kind = Output::Kind::tensors;
      for (const Json& one : v) made.values.push_back(tensor_of(one));
    } else if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float") {
      made.kind = Output::Kind::number;
      if (v.contains("as_name")) made.values = {value_of(v.at("as_name"))};
    } else {
      throw refused("has a node whose output is of kind " + printable(kind, 50),
                    "let the module compute tensors only");
    }
    for (const ValueId id : made.values) define(id);
    return made;
  }

  void read_inputs() {
    for (const Json& spec : module_.at("signature").at("input_specs")) {
      const auto [kind, value] = alternative(spec);
      GraphInput input;
      if (kind == "user_input") {
        const auto [argument, inner] = alternative(value->at("arg"));
        if (argument != "as_tensor") {
          throw refused(fmt::format("takes an input that is no tensor ({})", printable(argument, 50)),
                        "export a module whose forward takes tensors only");
        }
        input.value = tensor_of(*inner);
        input.name = graph_.values[input.value].name;
      } else if (kind == "parameter" || kind == "buffer" || kind == "tensor_constant") {
        input.value = tensor_of(value->at("arg"));
        const bool parameter = kind == "parameter";
        const bool buffer = kind == "buffer";
        input.kind = parameter ? GraphInput::Kind::parameter
                     : buffer  ? GraphInput::Kind::buffer
                               : GraphInput::Kind::constant;
        input.name = value->at(parameter ? "parameter_name"
                               : buffer  ? "buffer_name"
                                         : "tensor_constant_name")
                         .get<std::string>();
        if (buffer) input.persistent = value->at("persistent").get<bool>();
      } else if (kind == "constant_input") {
        continue;  // a number or None that export has put into the nodes already
      } else {
        throw refused("takes an input of kind " + printable(kind, 50),
                      "export a module whose forward takes tensors only");
      }
      define(input.value);
      graph_.inputs.push_back(std::move(input));
    }
  }

  void read_node(const Json& given) {
    Node node{.target = given.at("target").get<std::string>()};
    if (given.contains("name") && given.at("name").is_string())
      node.name = given.at("name").get<std::string>();
    if (given.contains("metadata")) {
      const Json& metadata = given.at("metadata");
      set_module(node, metadata.value("nn_module_stack", std::string()));
      node.line = line_of(metadata.value("stack_trace", std::string()));
    }
    for (const Json& input : given.at("inputs"))
      node.inputs.emplace_back(input.at("name").get<std::string>(), argument_of(input.at("arg")));
    for (const Json& output : given.at("outputs")) node.outputs.push_back(output_of(output));
    if (node.name.empty() && !node.outputs.empty() && !node.outputs[0].values.empty())
      node.name = graph_.values[node.outputs[0].values[0]].name;
    graph_.nodes.push_back(std::move(node));
  }

  void read_outputs() {
    for (const Json& spec : module_.at("signature").at("output_specs")) {
      const auto [kind, value] = alternative(spec);
      if (kind == "buffer_mutation" || kind == "user_input_mutation" || kind == "parameter_mutation") {
        throw refused("was rewritten without operations in place (by run_decompositions)",
                      "save what torch.export.export returns, as it is");
      }
      if (kind != "user_output" && kind != "loss_output") continue;
      const auto [argument, inner] = alternative(value->at("arg"));
      if (argument == "as_tensor") graph_.outputs.push_back(used(tensor_of(*inner)));
    }
    if (graph_.outputs.empty()) throw refused("returns no tensor", "let forward return the model's outputs");
  }

  std::string hash_of(const Json& graph) const {
    Json kept = {{"inputs", graph.at("inputs")},
                 {"outputs", graph.at("outputs")},
                 {"values", graph.at("tensor_values")},
                 {"signature", module_.at("signature")},
                 {"nodes", Json::array()}};
    for (const Json& node : graph.at("nodes")) {
      kept["nodes"].push_back(
          {{"target", node.at("target")}, {"inputs", node.at("inputs")}, {"outputs", node.at("outputs")}});
    }
    return sha256_of(kept.dump());
  }

  const Json& module_;
  Graph graph_;
  std::map<std::string, ValueId> ids_;
  std::vector<bool> defined_;
};

/// What PyTorch took for true of the sizes.
void read_limits(const Json& model, Graph& graph) {
  if (const auto ranges = model.find("range_constraints"); ranges != model.end()) {
    for (const auto& [symbol, range] : ranges->items())
      graph.ranges[symbol] = {.least = limit_of(range, "min_val").value_or(0),
                              .most = limit_of(range, "max_val")};
  }
  if (const auto guards = model.find("guards_code"); guards != model.end()) {
    for (const Json& guard : *guards) graph.conditions.push_back(guard.get<std::string>());
  }
}

}  // namespace

Graph parse_graph(std::string_view text) {
  if (const auto problem = refused_json(text); !problem.empty()) throw damaged("has a graph that " + problem);
  const Json model = Json::parse(text);
  const auto& version = model.at("schema_version");
  const auto major = required_whole_number(version.at("major"));
  const auto minor = required_whole_number(version.at("minor"));
  if (major != kSchemaMajor) {
    throw refused(fmt::format("is of schema {}.{}, and dtrain reads schema {}", major, minor, kSchemaMajor),
                  "export it with PyTorch 2.11");
  }
  Graph graph = Reading(model).graph();
  read_limits(model, graph);
  return graph;
}

}  // namespace dtrain::models::exported
