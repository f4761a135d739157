#pragma once

#include <ATen/core/Tensor.h>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "parallel/strategy/difference_codec.hpp"
#include "parallel/strategy/local_copy.hpp"

namespace dtrain::parallel {

/// Makes a part of all copies' parameters their mean, in all bits of their type or with fewer on the way.
///
/// In 16 or 8 bits each copy sends its difference to the values agreed on last to all others, and each adds
/// up all of them in fp32, in the order of the ranks: so all have the same bits. With n values and p copies a
/// rank sends (p - 1) n bytes in 8 bits, and a 64th for scales.
class PartExchange {
 public:
  /// Both are borrowed. `copies`: the ranks that hold a copy each.
  PartExchange(LocalCopy& copy, comm::Group& copies, ExchangeType type)
      : copy_(copy), copies_(copies), type_(type) {}

  /// The part of the copy's parameters becomes the mean, in which this copy counts `weight`; of weights that
  /// add up to nothing, the agreed values. `agreed` [n]: flat, the same bits on all copies. Collective over
  /// the copies.
  void average(const Range& part, const at::Tensor& agreed, double weight);

 private:
  void average_all_bits(const Range& part, const at::Tensor& agreed, double weight);
  void average_differences(const Range& part, const at::Tensor& agreed, double weight);

  LocalCopy& copy_;
  comm::Group& copies_;
  ExchangeType type_;
};

}  // namespace dtrain::parallel
