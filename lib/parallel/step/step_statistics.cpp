#include "parallel/step/step_statistics.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

#include "kernels/fused/rules.hpp"
#include "parallel/agreement.hpp"

namespace dtrain::parallel {
namespace {

/// The values of some buffers of one type as they were: of all at once, since a device takes longer to start
/// a kernel than to do it.
class KeptValues {
 public:
  explicit KeptValues(const std::vector<models::Buffer*>& buffers) {
    for (const models::Buffer* buffer : buffers) values_.push_back(buffer->value);
    if (!values_.empty()) flat_ = flattened();
  }

  /// `new_ones_count`: bool [1], where the values are.
  void put_back_unless(const at::Tensor& new_ones_count) const {
    if (values_.empty()) return;
    const at::Tensor chosen = at::where(new_ones_count, flattened(), flat_);
    std::vector<at::Tensor> parts;
    std::int64_t next = 0;
    for (const at::Tensor& value : values_) {
      parts.push_back(chosen.narrow(0, next, value.numel()).view(value.sizes()));
      next += value.numel();
    }
    at::_foreach_copy_(values_, parts);
  }

 private:
  at::Tensor flattened() const {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& value : values_) flat.push_back(value.reshape({-1}));
    return at::cat(flat);
  }
  std::vector<at::Tensor> values_;
  at::Tensor flat_;
};

}  // namespace

StepStatistics::StepStatistics(models::Model& model, comm::Group& group, int rows) : group_(group) {
  for (models::Buffer* buffer : model.buffers()) {
    if (buffer->update == models::Buffer::Update::constant) continue;
    const bool averaged = buffer->update == models::Buffer::Update::moving_mean;
    (averaged ? averaged_ : counters_).push_back(buffer);
    if (averaged) sums_ += rows * buffer->value.numel();
  }
  if (averaged_.empty()) return;  // alike on all ranks: they have the same model
  const auto options = averaged_.front()->value.options().dtype(at::kDouble);
  memory_.emplace(group, sums_ + static_cast<std::int64_t>(averaged_.size()), options);
  if (on_device()) weights_ = group.allocate(averaged_.size() * sizeof(double));
  std::int64_t next = 0;
  for (models::Buffer* buffer : averaged_) {
    auto shape = buffer->value.sizes().vec();
    shape.insert(shape.begin(), rows);
    const auto count = rows * buffer->value.numel();
    buffer->step_sum = memory_->values().narrow(0, next, count).view(shape);
    next += count;
  }
}

StepStatistics::~StepStatistics() {
  for (models::Buffer* buffer : averaged_) {
    try {
      buffer->step_sum = buffer->step_sum.clone();
    } catch (const std::exception&) {  // a device that has failed, or no memory left
      buffer->step_sum.reset();        // its own ends here
    }
  }
}

void StepStatistics::begin_step() {
  handle_.wait();  // of a step that was not applied
  weighed_.wait();
  exchanged_ = taken_in_ = false;
  if (averaged_.empty()) return;
  memory_->values()
      .narrow(0, 0, sums_)
      .zero_();  // all of them at once: a device takes longer to start than to do it
  for (models::Buffer* buffer : averaged_) buffer->step_weight = 0.0;
}

void StepStatistics::exchange() {
  if (averaged_.empty() || group_.size() == 1) return;
  exchanged_ = true;
  std::vector<double> weights;
  for (const models::Buffer* buffer : averaged_) weights.push_back(buffer->step_weight);
  Range all{0, memory_->values().numel()};
  if (on_device()) {  // the CPU would wait for what comes back with the sums
    all.end = sums_;
    std::ranges::copy(weights, static_cast<double*>(weights_->data()));
    const std::span<double> message(static_cast<double*>(weights_->data()), weights.size());
    weighed_ = group_.all_reduce(comm::Buffer::of(message), comm::ReduceOp::sum);
  } else {
    memory_->values().narrow(0, sums_, all.end - sums_).copy_(at::tensor(weights));
  }
  handle_ = memory_->group().all_reduce(memory_->outgoing(all), comm::ReduceOp::sum);
}

void StepStatistics::take_in() {
  if (averaged_.empty() || taken_in_) return;
  taken_in_ = true;
  step_weights_.clear();
  for (const models::Buffer* buffer : averaged_) step_weights_.push_back(buffer->step_weight);
  if (!exchanged_) return;
  const auto& all = memory_->values();
  memory_->take_in(handle_, {0, on_device() ? sums_ : all.numel()});
  weighed_.wait();
  const auto* const of_all_ranks =
      on_device() ? static_cast<const double*>(weights_->data()) : all.const_data_ptr<double>() + sums_;
  std::copy_n(of_all_ranks, averaged_.size(), step_weights_.begin());
}

void StepStatistics::apply() {
  take_in();
  const at::NoGradGuard no_grad;
  if (!averaged_.empty()) update_averages();
  for (models::Buffer* buffer : counters_) buffer->value.add_(1);
}

bool StepStatistics::on_device() const { return !averaged_.empty() && !averaged_.front()->value.is_cpu(); }

// On a device the buffers are updated as ever, and are then those from before unless the step counts: the
// same bits, and a sum that is not a number leaves no trace.
void StepStatistics::apply_as_decided(const at::Tensor& decision) {
  if (averaged_.empty() && counters_.empty()) return;
  using kernels::UpdateDecision;
  if (decision.is_cpu()) {
    UpdateDecision decided;
    std::memcpy(&decided, decision.const_data_ptr(), sizeof decided);
    if (decided.applies != 0) apply();
    return;
  }
  const at::NoGradGuard no_grad;
  const KeptValues averages(averaged_);
  const KeptValues counts(counters_);
  apply();
  const at::Tensor applies =
      decision.narrow(0, offsetof(UpdateDecision, applies), sizeof(UpdateDecision::applies)).view(at::kInt);
  averages.put_back_unless(applies.ne(0));
  counts.put_back_unless(applies.ne(0));
}

void StepStatistics::update_averages() {
  const auto& all = memory_->values();
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> sums;
  std::vector<at::Scalar> kept;
  std::vector<at::Scalar> shares;
  for (std::size_t i = 0; i < averaged_.size(); ++i) {
    models::Buffer& buffer = *averaged_[i];
    const double weight = step_weights_[i];
    if (weight == 0.0) continue;  // no micro-batch had a variance
    const auto sum = buffer.step_sum[0];
    for (std::int64_t row = 1; row < buffer.step_sum.size(0); ++row) sum.add_(buffer.step_sum[row]);
    if (buffer.value.is_cpu()) {
      buffer.value.mul_(1.0 - buffer.momentum).add_(sum, buffer.momentum / weight);
      continue;
    }
    values.push_back(buffer.value);
    sums.push_back(sum);
    kept.emplace_back(1.0 - buffer.momentum);
    shares.emplace_back(buffer.momentum / weight);
  }
  if (values.empty()) return;
  // All at once: a device takes longer to start a kernel than to do it. The sums are begun anew in each step.
  at::_foreach_mul_(sums, shares);
  at::_foreach_mul_(values, kept);
  std::vector<at::Tensor> added;
  const at::Tensor flat = all.narrow(0, 0, sums_).to(values.front().scalar_type());
  for (const at::Tensor& sum : sums) {
    added.push_back(flat.as_strided(sum.sizes(), sum.strides(), sum.storage_offset() - all.storage_offset()));
  }
  at::_foreach_add_(values, added);
}

void broadcast_buffers(comm::Group& group, models::Model& model) {
  const at::NoGradGuard no_grad;
  // Apart: a whole number of a user's program may be larger than a double holds.
  for (const auto type : {at::kDouble, at::kLong}) {
    std::vector<at::Tensor> own, flat;
    for (const models::Buffer* buffer : model.buffers()) {
      if (buffer->value.is_floating_point() != (type == at::kDouble)) continue;
      own.push_back(buffer->value);
      flat.push_back(buffer->value.flatten().to(type));
    }
    if (flat.empty()) continue;
    at::Tensor values = at::cat(flat);
    broadcast_parameters(group, values);
    std::int64_t next = 0;
    for (at::Tensor& buffer : own) {
      buffer.copy_(values.narrow(0, next, buffer.numel()).reshape(buffer.sizes()));
      next += buffer.numel();
    }
  }
}

}  // namespace dtrain::parallel
