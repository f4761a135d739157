#include "parallel/strategy/federated/update_sum.hpp"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kUnits = 0x1p40;

}  // namespace

UpdateSum::UpdateSum(comm::Group& group, std::int64_t values)
    : group_(group),
      values_(values),
      memory_(group.allocate(static_cast<std::size_t>(values + kCounts) * sizeof(std::int64_t))),
      sums_(static_cast<std::int64_t*>(memory_->data())) {}

void UpdateSum::begin() { std::fill_n(sums_, values_ + kCounts, std::int64_t{0}); }

bool UpdateSum::is_summable(const at::Tensor& values) {
  bool good = true;
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "is_summable", [&] {
    const auto* const from = values.const_data_ptr<scalar_t>();
    // A NaN fails the comparison.
    for (std::int64_t i = 0; i < values.numel(); ++i)
      good &= std::abs(from[i]) < static_cast<scalar_t>(kLargest);
  });
  return good;
}

void UpdateSum::add(const at::Tensor& values, double share, std::int64_t first) {
  require(first >= 0 && first + values.numel() <= values_, "has other values than the sum of updates",
          {.subject = "an update", .advice = "report this as a bug"});
  const double factor = share * kUnits;
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "add_update", [&] {
    const auto* const from = values.const_data_ptr<scalar_t>();
    auto* const to = sums_ + first;
    for (std::int64_t i = 0; i < values.numel(); ++i)
      to[i] += std::llrint(static_cast<double>(from[i]) * factor);
  });
}

void UpdateSum::add_number(std::int64_t place, double number) {
  require(std::abs(number) < kLargest, "is too large for the sum of updates",
          {.subject = "a number of a round", .advice = "use fewer --local-epochs"});
  sums_[values_ + place] += std::llrint(number * kUnits);
}

void UpdateSum::exchange() {
  if (group_.size() == 1) return;
  const comm::Buffer all{sums_, static_cast<std::size_t>(values_ + kCounts), comm::DataType::int64};
  group_.all_reduce(all, comm::ReduceOp::sum).wait();
}

double UpdateSum::number(std::int64_t place) const {
  return static_cast<double>(sums_[values_ + place]) / kUnits;
}

void UpdateSum::take(at::Tensor& out, double factor, std::int64_t first) const {
  const double scale = factor / kUnits;
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "take_sum", [&] {
    auto* const to = out.mutable_data_ptr<scalar_t>();
    const auto* const from = sums_ + first;
    for (std::int64_t i = 0; i < out.numel(); ++i)
      to[i] = static_cast<scalar_t>(static_cast<double>(from[i]) * scale);
  });
}

}  // namespace dtrain::parallel
