#include "parallel/strategy/federated/plain_sum.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace dtrain::parallel {
namespace {

// Counts of UpdateSum.
constexpr std::int64_t kSampleCount = 0;  // of the clients that have handed in
constexpr std::int64_t kClientCount = 1;  // these
constexpr std::int64_t kMeanWork = 2;     // the mean of ClientUpdate::local_work, a number

bool may_be_added(const at::Tensor& values) { return !values.defined() || UpdateSum::is_summable(values); }

}  // namespace

PlainSum::PlainSum(const StrategyParts& parts, const Sizes& sizes, FederatedPrivacy* privacy)
    : sizes_(sizes),
      normalises_(parts.setting.options.federated.rule == "fednova"),
      privacy_(privacy),
      sum_(parts.data, sizes.parameters + sizes.buffers + sizes.control) {}

void PlainSum::begin(const StepPlan& plan) {
  sum_.begin();
  round_ = plan.number;
  samples_ = plan.round->samples;
  of_ = plan.round->of;
}

bool PlainSum::hand_in(const ClientUpdate& update, StepTotals& own) {
  const auto samples = update.work.samples;
  const double counts = static_cast<double>(samples) / static_cast<double>(samples_);
  const double share = privacy_ != nullptr ? privacy_->hand_in(update.parameters, counts, sum_) : counts;
  if (!may_be_added(update.parameters) || !may_be_added(update.buffers) || !may_be_added(update.control))
    return false;
  own.add_samples(update.totals);
  sum_.add(update.parameters, share / update.local_work);
  sum_.add(update.buffers, share, sizes_.parameters);
  if (update.control.defined()) sum_.add(update.control, 1.0 / of_, sizes_.parameters + sizes_.buffers);
  sum_.add_count(kSampleCount, samples);
  sum_.add_count(kClientCount, 1);
  sum_.add_number(kMeanWork, share * update.local_work);
  return true;
}

RoundSum::Result PlainSum::finish(at::Tensor& mean) {
  if (privacy_ != nullptr) privacy_->add_noise(round_, sum_);
  sum_.exchange();
  if (privacy_ != nullptr) privacy_->take_sum(sum_);
  const bool is_mean = privacy_ != nullptr && privacy_->sum_is_mean();
  Result result{.clients = static_cast<int>(sum_.count(kClientCount)), .samples = sum_.count(kSampleCount)};
  result.is_update = result.clients > 0 || is_mean;
  whole_ = is_mean ? 1
                   : static_cast<double>(samples_) /
                         static_cast<double>(std::max<std::int64_t>(result.samples, 1));
  if (result.is_update) sum_.take(mean, normalises_ ? whole_ * whole_ * sum_.number(kMeanWork) : whole_);
  return result;
}

void PlainSum::take_buffers(at::Tensor& change) const { sum_.take(change, whole_, sizes_.parameters); }

void PlainSum::take_control(at::Tensor& change) const {
  sum_.take(change, 1, sizes_.parameters + sizes_.buffers);
}

}  // namespace dtrain::parallel
