#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "parallel/memory/exchange_memory.hpp"
#include "parallel/strategy/difference_codec.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/tensor/common_parameters.hpp"

namespace dtrain::parallel {

/// A part of all copies' parameters whose mean is on its way.
class SentPart {
 public:
  SentPart() = default;
  virtual ~SentPart() = default;
  SentPart(const SentPart&) = delete;
  SentPart& operator=(const SentPart&) = delete;

  /// Waits for it, and leaves the mean in `mean` [elements of the part].
  virtual void receive(at::Tensor mean) = 0;
};

/// Makes a part of all copies' parameters their mean, in all bits of their type or with fewer on the way.
///
/// In 16 or 8 bits each copy sends its difference to the values agreed on last to all others, and each adds
/// up all of them in fp32, in the order of the ranks: so all have the same bits. With n values and p copies a
/// rank sends (p - 1) n bytes in 8 bits, and a 64th for scales. In 8 bits rounding depends on what lies
/// beside a value: then the ranks of a tensor group take over the first one's sums of what they have in
/// common.
class PartExchange {
 public:
  /// All are borrowed. `copies`: the ranks that hold a copy each. `tensor`: those that hold this one's
  /// slices.
  PartExchange(LocalCopy& copy, comm::Group& copies, comm::Group& tensor, ExchangeType type);

  /// What a copy counts in the mean. Shares of all copies add up to 1, which spares a message.
  struct Weight {
    double value = 1;
    bool is_share = false;  ///< The same on all copies.
  };

  /// The part of the copy's parameters becomes the mean, in which this copy counts `weight`; of weights that
  /// add up to nothing, the agreed values. `agreed` [n]: flat, the same bits on all copies. Collective over
  /// the copies.
  void average(const Range& part, const at::Tensor& agreed, Weight weight);

  /// Begins the same and leaves the copy's parameters alone, which may change meanwhile; `agreed` stays as it
  /// is in this part. Sums travel in `memory`, of the copies and the parameters' size: its part is not to be
  /// touched until the mean is received. Null: there is no part, or no other copy. Collective over the
  /// copies.
  std::unique_ptr<SentPart> send(const Range& part, const at::Tensor& agreed, Weight weight,
                                 const ExchangeMemory& memory);

 private:
  void average_all_bits(const Range& part, const at::Tensor& agreed, Weight weight);

  LocalCopy& copy_;
  comm::Group& copies_;
  ExchangeType type_;
  std::unique_ptr<CommonParameters> common_;  // null: all round it alike
};

}  // namespace dtrain::parallel
