#include "parallel/step_statistics.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>

#include "parallel/agreement.hpp"

namespace dtrain::parallel {

StepStatistics::StepStatistics(models::Model& model, comm::Group& group, int rows) : group_(group) {
  std::size_t sums = 0;
  for (models::Buffer* buffer : model.buffers()) {
    const bool averaged = buffer->update == models::Buffer::Update::moving_mean;
    (averaged ? averaged_ : counters_).push_back(buffer);
    if (averaged) sums += static_cast<std::size_t>(rows * buffer->value.numel());
  }
  if (averaged_.empty()) return;  // alike on all ranks: they have the same model
  doubles_ = sums + averaged_.size();
  memory_ = group.allocate(doubles_ * sizeof(double));
  auto* next = static_cast<double*>(memory_->data());
  weights_ = next + sums;
  for (models::Buffer* buffer : averaged_) {
    auto shape = buffer->value.sizes().vec();
    shape.insert(shape.begin(), rows);
    buffer->step_sum = at::from_blob(next, shape, at::TensorOptions().dtype(at::kDouble));
    next += rows * buffer->value.numel();
  }
}

StepStatistics::~StepStatistics() {
  for (models::Buffer* buffer : averaged_) buffer->step_sum = buffer->step_sum.clone();
}

void StepStatistics::begin_step() {
  handle_.wait();  // of a step that was not applied
  for (models::Buffer* buffer : averaged_) {
    buffer->step_sum.zero_();
    buffer->step_weight = 0.0;
  }
}

void StepStatistics::exchange() {
  if (averaged_.empty()) return;
  std::ranges::transform(averaged_, weights_,
                         [](const models::Buffer* buffer) { return buffer->step_weight; });
  if (group_.size() == 1) return;
  const std::span<double> all(static_cast<double*>(memory_->data()), doubles_);
  handle_ = group_.all_reduce(comm::Buffer::of(all), comm::ReduceOp::sum);
}

void StepStatistics::apply() {
  const at::NoGradGuard no_grad;
  if (!averaged_.empty() && group_.size() > 1) handle_.wait();
  for (std::size_t i = 0; i < averaged_.size(); ++i) {
    models::Buffer& buffer = *averaged_[i];
    if (weights_[i] == 0.0) continue;  // no micro-batch had a variance
    const auto sum = buffer.step_sum[0];
    for (std::int64_t row = 1; row < buffer.step_sum.size(0); ++row) sum.add_(buffer.step_sum[row]);
    buffer.value.mul_(1.0 - buffer.momentum).add_(sum, buffer.momentum / weights_[i]);
  }
  for (models::Buffer* buffer : counters_) buffer->value.add_(1);
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
