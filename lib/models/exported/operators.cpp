#include "models/exported/operators.hpp"

#include <ATen/core/enum_tag.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/printable.hpp"
#include "models/exported/callable.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::string_view kPrefix = "torch.ops.";

/// `torch.ops.aten.conv2d.default` in its parts.
struct Target {
  std::string space;
  std::string name;
  std::string overload;
};

std::optional<Target> parts_of(const std::string& target) {
  if (!target.starts_with(kPrefix)) return std::nullopt;
  const auto begin = kPrefix.size();
  const auto first = target.find('.', begin);
  const auto second = first == std::string::npos ? first : target.find('.', first + 1);
  if (second == std::string::npos) return std::nullopt;
  std::string overload = target.substr(second + 1);
  if (overload == "default") overload.clear();
  return Target{target.substr(begin, first - begin), target.substr(first + 1, second - first - 1),
                std::move(overload)};
}

bool is_random(const c10::OperatorHandle& found) { return found.hasTag(at::Tag::nondeterministic_seeded); }

/// Those that dtrain draws itself (own_operations.hpp).
bool is_drawn_by_dtrain(const Target& target) {
  constexpr std::array<std::string_view, 5> kOwn = {"dropout", "dropout_", "scaled_dot_product_attention",
                                                    "lstm", "gru"};
  return target.space == "aten" && std::ranges::find(kOwn, target.name) != kOwn.end();
}

/// nn.RNN without dropout, which draws nothing.
bool is_plain_recurrence(const Node& node) {
  if (!calls(node, "rnn_tanh") && !calls(node, "rnn_relu")) return false;
  const auto* dropout = node.find("dropout");
  return dropout != nullptr && dropout->kind == Argument::Kind::real && dropout->reals.at(0) == 0.0;
}

/// Operators that see how a tensor lies in memory: dtrain lays images out otherwise, and all parameters
/// behind one another, so that they would read another tensor.
bool sees_memory(const Target& target) {
  constexpr std::array<std::string_view, 8> kNames = {
      "as_strided",     "as_strided_", "as_strided_copy", "as_strided_scatter",
      "_reshape_alias", "set_",        "resize_",         "resize_as_"};
  return target.space == "aten" && std::ranges::find(kNames, target.name) != kNames.end();
}

/// Operators after which a tensor is what it was, but of another shape.
bool turns_in_place(const Target& target) {
  constexpr std::array<std::string_view, 6> kNames = {"unsqueeze_", "squeeze_",  "t_",
                                                      "transpose_", "swapaxes_", "swapdims_"};
  return target.space == "aten" && std::ranges::find(kNames, target.name) != kNames.end();
}

/// Whether an argument is written to, or tensors of a list that it is.
bool is_written(const c10::Argument& argument) {
  const auto* info = argument.alias_info();
  return info != nullptr &&
         (info->isWrite() ||
          std::ranges::any_of(info->containedTypes(), [](const auto& inner) { return inner.isWrite(); }));
}

/// The Error for a higher-order operator.
Error control_flow(const Node& node) {
  const auto& target = node.target;
  if (target.find("set_grad_enabled") != std::string::npos) {
    return refused(node, "runs part of the program under torch.no_grad()",
                   "use detach() on its results instead");
  }
  if (target.find("autocast") != std::string::npos) {
    return refused(node, "runs part of the program under autocast",
                   "leave autocast out and start dtrain with --precision bf16");
  }
  return refused(node, "is control flow that depends on values",
                 "compute both branches and choose with torch.where, or write the loop out");
}

}  // namespace

Error refused(const Node& node, const std::string& problem, const std::string& advice) {
  return Error(fmt::format("{} {}", node.where(), problem), {.advice = advice, .code = ExitCode::usage});
}

bool is_about_sizes(const Node& node) {
  if (node.target.find("higher_order") != std::string::npos) return false;
  for (const auto& output : node.outputs) {
    if (output.kind == Output::Kind::tensor || output.kind == Output::Kind::tensors) return false;
  }
  const auto found = find_operator(node);
  // One that this process does not know may write to what it is given, as one that returns nothing does.
  if (!found) return !node.target.starts_with(kPrefix);
  return std::ranges::none_of(found->schema().arguments(), is_written);
}

bool calls(const Node& node, std::string_view name) {
  const auto target = parts_of(node.target);
  return target && target->space == "aten" && target->name == name;
}

std::optional<ValueId> tensor_of(const Node& node, std::string_view argument) {
  const auto* given = node.find(argument);
  if (given == nullptr || given->kind != Argument::Kind::tensor) return std::nullopt;
  return given->values.at(0);
}

std::optional<std::int64_t> number_of(const Node& node, std::string_view argument) {
  const auto* given = node.find(argument);
  if (given == nullptr || given->sizes.size() != 1 || given->sizes[0].value) return std::nullopt;
  return given->sizes[0].number;
}

bool has_one_result(const Node& node) {
  return node.outputs.size() == 1 && node.outputs[0].kind == Output::Kind::tensor;
}

ValueId result_of(const Node& node) { return node.outputs.at(0).values.at(0); }

std::optional<c10::OperatorHandle> find_operator(const Node& node) {
  const auto target = parts_of(node.target);
  if (!target) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema({target->space + "::" + target->name, target->overload});
}

void check_operator(const Node& node) {
  if (node.target.find("higher_order") != std::string::npos) throw control_flow(node);
  const auto found = find_operator(node);
  if (!found) {
    throw refused(node, "is an operator that this LibTorch does not have",
                  "give --plugin with the library that registers it, or use operators of torch and torch.nn");
  }
  const auto target = *parts_of(node.target);
  if (sees_memory(target)) {
    throw refused(node,
                  "reads a tensor's memory by strides, and dtrain lays tensors out otherwise than PyTorch",
                  "use view, reshape, transpose, narrow or unfold");
  }
  if (const auto why = why_not_callable(target.space, target.name))
    throw refused(node, *why, "use operators of torch and torch.nn, or give --plugin with your own");
  if (turns_in_place(target)) {
    throw refused(node, "changes a tensor's shape in place",
                  "call it without the underscore, such as y = y.unsqueeze(1)");
  }
  if (is_random(*found) && !is_drawn_by_dtrain(target) && !is_plain_recurrence(node)) {
    throw refused(node, "draws random numbers, which would depend on the number of ranks",
                  "use nn.Dropout or F.dropout, whose masks dtrain draws, or make them part of the dataset");
  }
}

namespace {

/// Which tensors a node is given for an argument.
std::vector<ValueId> tensors_of(const Node& node, const std::string& argument) {
  std::vector<ValueId> found;
  if (const auto* given = node.find(argument)) {
    for (const auto& value : given->values) {
      if (value) found.push_back(*value);
    }
  }
  return found;
}

/// Operators that may return their input, or views of it, although their schema does not say so.
bool may_return_input(const Node& node) {
  constexpr std::array<std::string_view, 11> kNames = {"dropout",
                                                       "type_as",
                                                       "broadcast_tensors",
                                                       "meshgrid",
                                                       "atleast_1d",
                                                       "atleast_2d",
                                                       "atleast_3d",
                                                       "sum_to_size",
                                                       "unsafe_chunk",
                                                       "unsafe_split",
                                                       "unsafe_split_with_sizes"};
  // Of one tensor: they turn it.
  constexpr std::array<std::string_view, 2> kOfOne = {"einsum", "cartesian_prod"};
  const auto calls_it = [&](std::string_view name) { return calls(node, name); };
  const auto* tensors = node.find("tensors");
  return std::ranges::any_of(kNames, calls_it) ||
         (tensors != nullptr && tensors->values.size() == 1 && std::ranges::any_of(kOfOne, calls_it));
}

/// The alias sets of an annotation, those of a list's elements too.
std::set<std::string> sets_of(const c10::AliasInfo& info) {
  std::set<std::string> found;
  for (const auto* sets : {&info.beforeSets(), &info.afterSets()}) {
    for (const auto& set : *sets) found.insert(set.toUnqualString());
  }
  for (const auto& inner : info.containedTypes()) found.merge(sets_of(inner));
  return found;
}

}  // namespace

std::vector<Sharing> shared_memory(const Node& node, const c10::FunctionSchema& schema) {
  std::vector<Sharing> found;
  const bool any = may_return_input(node);
  const auto& returns = schema.returns();
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const auto& output = node.outputs[i];
    if (output.kind != Output::Kind::tensor && output.kind != Output::Kind::tensors) continue;
    const auto* info = i < returns.size() ? returns[i].alias_info() : nullptr;
    for (const auto& argument : schema.arguments()) {
      const auto* theirs = argument.alias_info();
      bool shares = any && argument.name() != "other";  // of type_as
      if (info != nullptr && theirs != nullptr) {
        const auto ours = sets_of(*info);
        shares = std::ranges::any_of(sets_of(*theirs), [&](const auto& set) { return ours.contains(set); });
      }
      if (!shares) continue;
      const bool same = theirs != nullptr && theirs->isWrite();
      for (const ValueId input : tensors_of(node, argument.name())) {
        for (const ValueId value : output.values)
          found.push_back({value, input, same ? Sharing::How::same : Sharing::How::view});
      }
    }
  }
  return found;
}

std::vector<ValueId> written(const Node& node, const c10::FunctionSchema& schema) {
  std::vector<ValueId> found;
  for (const auto& argument : schema.arguments()) {
    if (!is_written(argument)) continue;
    const auto given = tensors_of(node, argument.name());
    found.insert(found.end(), given.begin(), given.end());
  }
  return found;
}

}  // namespace dtrain::models::exported
