#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/layer.hpp"

namespace dtrain::state {

/// Messages between the ranks that hold the parts of a tensor. Parts are counted by the ranks of a tensor
/// group: part i of n is part_of() the sliced dim.
class PartMessages {
 public:
  virtual ~PartMessages() = default;
  /// Sends a part that this rank holds, contiguous and on the CPU, to the rank that puts the tensor together.
  virtual void send(const at::Tensor& part) = 0;
  /// Fills `part`, contiguous and on the CPU, with what the rank of part `index` has sent.
  virtual void receive(at::Tensor& part, int index) = 0;
};

/// Puts a sliced tensor together on one rank. All ranks that hold parts call it, for the same tensors in the
/// same order. `parts`: by their index, undefined where another rank has the part; `whole`: on the rank that
/// is to have it a contiguous tensor on the CPU of shape slice.whole, elsewhere null.
void gather_parts(const models::HeldSlice& slice, const std::vector<at::Tensor>& parts, at::Tensor* whole,
                  PartMessages& messages);

/// Shares out tensors of so many bytes: for each the index of the one that gets it, which is the one with
/// least so far. At most `most` get any, and only as many as have `smallest_share` bytes each.
std::vector<int> share_out(const std::vector<std::int64_t>& bytes, std::int64_t most,
                           std::int64_t smallest_share);

}  // namespace dtrain::state
