#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "models/exported/graph.hpp"

namespace dtrain::models::exported {

/// Whether a node does nothing that training needs: it computes a number from sizes (those are expressions
/// already), or asserts something of the example it was exported with.
bool is_about_sizes(const Node& node);

/// LibTorch's operator for a node, found by its dispatcher.
std::optional<c10::OperatorHandle> find_operator(const Node& node);

/// Throws Error (exit code 2), with the node's module and line and what to write instead, where there is no
/// such operator, where it draws random numbers that dtrain does not draw, or where it is control flow.
void check_operator(const Node& node);

/// Whether a node calls `aten.NAME`, in any of its overloads.
bool calls(const Node& node, std::string_view name);

/// The tensor that a node is given for an argument.
std::optional<ValueId> tensor_of(const Node& node, std::string_view argument);
/// The whole number that it is given, alone or as a list of one; nothing where it is something else.
std::optional<std::int64_t> number_of(const Node& node, std::string_view argument);
/// Whether a node gives one tensor, and which.
bool has_one_result(const Node& node);
ValueId result_of(const Node& node);

/// An argument of the operator that the node writes to, or whose memory one of its outputs may be.
struct Sharing {
  ValueId output = 0;  ///< Which output, unless it is only written to.
  ValueId input = 0;
  enum class How { view, same } how = How::view;  ///< `same`: the output is the input, which was written to.
};
std::vector<Sharing> shared_memory(const Node& node, const c10::FunctionSchema& schema);

/// The tensors that it writes to.
std::vector<ValueId> written(const Node& node, const c10::FunctionSchema& schema);

/// An Error (exit code 2) about what a node does.
Error refused(const Node& node, const std::string& problem, const std::string& advice);

}  // namespace dtrain::models::exported
