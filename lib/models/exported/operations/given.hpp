#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "models/exported/operations/operation.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/planning/plan.hpp"

namespace dtrain::models::exported {

/// The arguments of a node, by name. Each function throws Error (exit code 2) where an argument is of another
/// kind.
class Given {
 public:
  Given(const Step& step, const Scope& scope) : node(scope.graph.nodes[step.node]), scope_(scope) {}

  const Node& node;

  std::optional<ValueId> tensor(const char* name) const {
    const auto* argument = node.find(name);
    if (argument == nullptr || argument->kind == Argument::Kind::none) return std::nullopt;
    if (argument->kind != Argument::Kind::tensor || !argument->values.at(0)) throw wrong(name);
    return argument->values[0];
  }
  std::optional<std::size_t> place(const char* name) const {
    const auto value = tensor(name);
    return value ? std::optional(scope_.place_of(*value)) : std::nullopt;
  }
  std::size_t needed_place(const char* name) const {
    const auto found = place(name);
    if (!found) throw wrong(name);
    return *found;
  }
  bool flag(const char* name, bool otherwise) const {
    const auto* argument = node.find(name);
    if (argument == nullptr) return otherwise;
    if (argument->kind != Argument::Kind::boolean) throw wrong(name);
    return argument->booleans.at(0);
  }
  double real(const char* name, double otherwise) const {
    const auto* argument = node.find(name);
    if (argument == nullptr || argument->kind == Argument::Kind::none) return otherwise;
    if (argument->kind == Argument::Kind::real) return argument->reals.at(0);
    if (argument->kind == Argument::Kind::size && !argument->sizes.at(0).value)
      return static_cast<double>(argument->sizes[0].number);
    throw wrong(name);
  }
  /// One number for all dims; nothing where they differ or are not known.
  std::optional<std::int64_t> alike(const char* name, std::int64_t otherwise) const {
    const auto* argument = node.find(name);
    if (argument == nullptr) return otherwise;
    if (argument->sizes.empty()) {
      return argument->kind == Argument::Kind::sizes ? std::optional(otherwise) : std::nullopt;
    }
    for (const Size& size : argument->sizes) {
      if (size.value || size.number != argument->sizes[0].number) return std::nullopt;
    }
    return argument->sizes[0].number;
  }
  std::size_t result() const {
    if (node.outputs.empty() || node.outputs[0].values.size() != 1) throw wrong("result");
    return scope_.place_of(node.outputs[0].values[0]);
  }
  double probability(const char* name) const {
    const double p = real(name, 0.5);
    if (!(p >= 0.0 && p <= 1.0)) throw refused(node, fmt::format("has a probability of {}", p), "use 0 to 1");
    return scope_.drops ? p : 0.0;
  }

 private:
  Error wrong(const char* name) const {
    return refused(node, fmt::format("has an argument {} that dtrain does not understand", name),
                   "export it with PyTorch 2.11");
  }
  const Scope& scope_;
};

}  // namespace dtrain::models::exported
