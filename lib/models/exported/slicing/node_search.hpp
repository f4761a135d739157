#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/exported/planning/memory.hpp"
#include "models/exported/planning/planned_program.hpp"

namespace dtrain::models::exported {

/// Where a node runs.
struct Place {
  std::size_t run = 0;
  std::size_t step = 0;  ///< In the run.
  auto operator<=>(const Place&) const = default;
};

/// A value that each rank has whole, and that a node takes to its part of another. If it is trained, the rank
/// finds a part of its gradient there.
struct Beside {
  Place place;  ///< Of the node.
  ValueId value = 0;
};

/// Whether a node calls one of these, `aten.NAME`.
bool calls_one(const Node& node, std::initializer_list<std::string_view> names);
/// Whether each element of its result depends on that element alone, of each tensor given.
bool is_element_wise(const Node& node);
/// The dim that a node is told for a tensor of `dims`, counted from the first; `otherwise` where it is not
/// told.
std::optional<std::size_t> dim_of(const Node& node, std::size_t dims, std::int64_t otherwise = 0,
                                  const char* argument = "dim");
/// Whether it cuts its tensor into pieces.
bool is_split(const Node& node);
/// Whether it gives its tensor again, in another type or elsewhere in memory.
bool is_copy(const Node& node);
/// Whether a node is a permutation of a tensor of four dims.
bool permutes(const Node& node, const std::array<std::int64_t, 4>& order);
/// Whether a node exchanges two dims, both counted from the first, of a tensor of `dims`.
bool exchanges(const Node& node, std::int64_t a, std::int64_t b, std::int64_t dims = 4);
/// Whether a linear layer's weight is [inputs, outputs], and not [outputs, inputs].
bool is_turned(const Node& linear);
/// Whether a node gives its input, `self`, another shape.
bool is_reshape(const Node& node);
/// What a linear layer is given.
std::optional<ValueId> linear_input(const Node& linear);
std::optional<ValueId> linear_weight(const Node& linear);
std::optional<ValueId> linear_bias(const Node& linear);

/// The nodes of a planned program, with the one that makes each value and those that use it.
class NodeSearch {
 public:
  explicit NodeSearch(const PlannedProgram& planned);

  const PlannedProgram& planned() const { return planned_; }
  const Graph& graph() const { return planned_.program.graph(); }
  const Node& node_at(const Place& place) const {
    return graph().nodes[planned_.plan.runs[place.run].steps[place.step].node];
  }
  /// Those of all runs, in their order.
  const std::vector<Place>& places() const { return places_; }

  /// The node that makes a value; nothing for what the program is given.
  std::optional<Place> producer(ValueId value) const;
  /// The one node that uses a value, unless the program returns it.
  std::optional<Place> only_user(ValueId value) const;

  /// All nodes that use a value, a node twice where it does so twice.
  std::vector<Place> users(ValueId value) const;
  /// Whether none but these nodes use a value, and the program does not return it.
  bool only_users(ValueId value, const std::set<Place>& nodes) const;
  /// Whether the program returns a value.
  bool is_returned(ValueId value) const;

  /// Whether a value may have a gradient: a parameter, or what is computed of one. A rank that computes with
  /// a part of what the value meets has a part of its gradient only.
  bool may_be_trained(ValueId value) const;

  /// Whether a node cuts its tensor into pieces along the last dim.
  bool splits_last_dim(const Node& node) const;

  /// Whether a value is the same for all that a result of `dims` dims has in dim `dim`: it is stretched
  /// there.
  bool is_alike_along(ValueId value, std::size_t dim, std::size_t dims) const;

  /// A linear layer whose parameters it alone uses: aten.linear, or aten.addmm of rows as Hugging Face's
  /// Conv1D has it, whose weight is [inputs, outputs].
  bool is_linear(const Node& node) const;
  std::int64_t outputs_of(const Node& linear) const;
  std::int64_t inputs_of(const Node& linear) const;
  /// A dim of a value counted from its first, or its last where it is negative; nothing where it depends on
  /// the inputs.
  std::optional<std::int64_t> size(ValueId value, int dim) const;
  std::size_t dims(ValueId value) const;
  /// Whether both have the same sizes, written alike.
  bool same_shape(ValueId one, ValueId other) const;

  /// What a person calls the node's module.
  static std::string title(const Node& node);

 private:
  ValueId root_of(ValueId value) const;
  void follow_training(const Step& step, const std::vector<ValueId>& read);
  bool is_own_parameter(const std::optional<ValueId>& value) const;

  const PlannedProgram& planned_;
  std::vector<Place> places_;
  std::map<ValueId, std::vector<Place>> users_;
  std::map<ValueId, Place> producers_;
  Memory memory_;
  std::set<ValueId> untrained_;  // by root_of()
};

}  // namespace dtrain::models::exported
