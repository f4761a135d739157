#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain {

/// A rectangular part of a logical tensor: what one rank or one file holds of it.
struct Slice {
  std::string name;                        ///< The whole tensor's global name, e.g. `hidden_fc.weight`.
  std::vector<std::int64_t> global_shape;  ///< Of the whole tensor.
  std::vector<std::int64_t> offset;        ///< First element along each dim; same length as global_shape.
  std::vector<std::int64_t> extent;        ///< Elements along each dim.

  /// The slice that is the whole tensor.
  static Slice whole(std::string name, std::vector<std::int64_t> shape);

  std::int64_t count() const;  ///< Elements in this slice.
  bool is_whole() const;

  /// Throws Error when the lengths differ or the slice leaves the tensor.
  void validate() const;
};

/// Part `index` of `parts` of a range of `n`: [floor(index n / parts), floor((index + 1) n / parts)).
/// Every cut in dtrain uses it: micro-batches, shards of a tensor, ranks of a collective.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};
Range part_of(std::int64_t n, std::int64_t index, std::int64_t parts);

}  // namespace dtrain
