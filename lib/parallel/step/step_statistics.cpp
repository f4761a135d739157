#include "parallel/step/step_statistics.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "parallel/agreement.hpp"

namespace dtrain::parallel {

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
  for (models::Buffer* buffer : averaged_) buffer->step_sum = buffer->step_sum.clone();
}

void StepStatistics::begin_step() {
  handle_.wait();  // of a step that was not applied
  exchanged_ = false;
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
  const Range all{0, memory_->values().numel()};
  memory_->values().narrow(0, sums_, all.end - sums_).copy_(at::tensor(weights), /*non_blocking=*/true);
  handle_ = memory_->group().all_reduce(memory_->outgoing(all), comm::ReduceOp::sum);
}

void StepStatistics::apply() {
  const at::NoGradGuard no_grad;
  if (!averaged_.empty()) update_averages();
  for (models::Buffer* buffer : counters_) buffer->value.add_(1);
}

void StepStatistics::update_averages() {
  const auto& all = memory_->values();
  at::Tensor weights;  // of all ranks
  if (exchanged_) {
    memory_->take_in(handle_, {0, all.numel()});
    weights = all.narrow(0, sums_, all.numel() - sums_).cpu();
  }
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> sums;
  std::vector<at::Scalar> kept;
  std::vector<at::Scalar> shares;
  for (std::size_t i = 0; i < averaged_.size(); ++i) {
    models::Buffer& buffer = *averaged_[i];
    const double weight = weights.defined() ? weights.const_data_ptr<double>()[i] : buffer.step_weight;
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
  std::vector<at::Tensor> flat;
  for (const models::Buffer* buffer : model.buffers())
    flat.push_back(buffer->value.flatten().to(at::kDouble));
  if (flat.empty()) return;
  at::Tensor values = at::cat(flat);  // whole numbers survive: counts stay far below 2^53
  broadcast_parameters(group, values);
  std::int64_t next = 0;
  for (models::Buffer* buffer : model.buffers()) {
    buffer->value.copy_(values.narrow(0, next, buffer->value.numel()).reshape(buffer->value.sizes()));
    next += buffer->value.numel();
  }
}

}  // namespace dtrain::parallel
