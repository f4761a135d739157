#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/exported/graph.hpp"

namespace dtrain::models::exported {

/// Where a tensor has samples: along `dim`, of which index i belongs to sample (i / after) % samples. Numbers
/// may depend on other sizes than the number of samples: each is there for two choices of these.
struct SamplePlace {
  using Twice = std::array<std::int64_t, 2>;

  std::size_t dim = 0;
  Twice before = {1, 1};  ///< The extent of `dim` is before x samples x after.
  Twice after = {1, 1};

  /// The rows of the first sample come first, then those of the second one.
  bool leads() const { return dim == 0 && before == Twice{1, 1}; }
  bool operator==(const SamplePlace&) const = default;
};

/// What the sizes of a program's values tell of samples.
class SampleSizes {
 public:
  /// `samples`: the symbol that counts them.
  SampleSizes(const Graph& graph, std::string samples) : graph_(graph), samples_(std::move(samples)) {}

  const std::vector<SizeExpression>& of(ValueId value) const { return graph_[value].tensor->sizes; }
  bool depends(const SizeExpression& size) const { return size.symbols().contains(samples_); }
  bool depends(ValueId value) const;

  /// A tensor's place of samples, as if those of a sample lay together; nothing where no dim has samples, or
  /// several have.
  std::optional<SamplePlace> place(ValueId value) const;

  /// Whether a tensor with samples at `place` may have these sizes.
  bool fits(ValueId value, const SamplePlace& place) const;

  /// The place in a tensor with the same elements in the same order; nothing where samples are torn apart.
  std::optional<SamplePlace> reshaped(ValueId from, const SamplePlace& place, ValueId to) const;

 private:
  std::optional<SamplePlace::Twice> each(const SizeExpression& size) const;
  std::optional<SamplePlace::Twice> elements_behind(ValueId value, std::size_t dim) const;
  std::vector<std::size_t> dims_with_samples(ValueId value) const;

  const Graph& graph_;
  std::string samples_;
};

}  // namespace dtrain::models::exported
