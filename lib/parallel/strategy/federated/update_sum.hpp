#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "comm/group.hpp"

namespace dtrain::parallel {

/// The weighted sum of the updates of all clients on all ranks, in whole numbers of 2^-40: its bits depend
/// neither on the order of the clients nor on which rank simulates which. A client's value is rounded by at
/// most 2^-41. Whole numbers are also what masks of a secure aggregation are added to.
class UpdateSum {
 public:
  /// Of `values` numbers, and of kCounts counts of the caller's. Collective over `group`: allocates memory
  /// that a node shares.
  UpdateSum(comm::Group& group, std::int64_t values);
  static constexpr std::int64_t kCounts = 4;
  /// The largest number of an update. The shares of all clients add up to at most 1, so that no sum of
  /// smaller ones overflows.
  static constexpr double kLargest = 0x1p22;

  void begin();  ///< Everything is zero.

  /// Adds share x values to the numbers from `first` on. `values`: float or double [n], all finite and below
  /// kLargest: is_summable(). `share`: in (0, 1].
  void add(const at::Tensor& values, double share, std::int64_t first = 0);
  static bool is_summable(const at::Tensor& values);

  void add_count(std::int64_t place, std::int64_t count) { sums_[values_ + place] += count; }
  /// A count that is a number in units of 2^-40.
  void add_number(std::int64_t place, double number);

  /// Adds up what all ranks have. Collective.
  void exchange();

  std::int64_t count(std::int64_t place) const { return sums_[values_ + place]; }
  double number(std::int64_t place) const;
  /// The `n` sums from `first` on, times `factor`, into `out` [n], float or double.
  void take(at::Tensor& out, double factor, std::int64_t first = 0) const;

 private:
  comm::Group& group_;
  std::int64_t values_;
  std::unique_ptr<comm::SharedBuffer> memory_;
  std::int64_t* sums_;
};

}  // namespace dtrain::parallel
