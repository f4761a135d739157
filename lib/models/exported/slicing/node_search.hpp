#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/exported/planning/planned_program.hpp"

namespace dtrain::models::exported {

/// Where a node runs.
struct Place {
  std::size_t run = 0;
  std::size_t step = 0;  ///< In the run.
  bool operator==(const Place&) const = default;
};

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

  /// A linear layer whose parameters it alone uses.
  bool is_linear(const Node& node) const;
  /// Of a linear layer's weight.
  std::int64_t extent(const Node& linear, std::size_t dim) const;
  /// A dim of a value counted from its first, or its last where it is negative; nothing where it depends on
  /// the inputs.
  std::optional<std::int64_t> size(ValueId value, int dim) const;
  std::size_t dims(ValueId value) const;

  /// What a person calls the node's module.
  static std::string title(const Node& node);

 private:
  bool is_own_parameter(const std::optional<ValueId>& value) const;

  const PlannedProgram& planned_;
  std::vector<Place> places_;
  std::map<ValueId, std::vector<Place>> users_;
  std::map<ValueId, Place> producers_;
};

}  // namespace dtrain::models::exported
