#include "parallel/step/late_decision.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <utility>

#include "kernels/reduce.hpp"
#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "parallel/device/device_clock.hpp"
#include "parallel/gradients/squares.hpp"

namespace dtrain::parallel {
namespace {

using kernels::SumOfSquares;
using kernels::UpdateDecision;
using kernels::UpdateInputs;

constexpr std::int64_t kBytes = sizeof(UpdateDecision);
static_assert(kBytes % sizeof(double) == 0);

/// Of all elements, as SumOfSquares where they lie.
at::Tensor squares_there(const at::Tensor& gradients) {
  const Range all{0, gradients.numel()};
  if (!gradients.is_cpu()) return start_squares(gradients, {&all, 1}).numbers;
  const SumOfSquares squares = squares_of(gradients);
  at::Tensor here = at::empty({2}, at::kDouble);
  static_assert(sizeof squares == 2 * sizeof(double));
  std::memcpy(here.data_ptr(), &squares, sizeof squares);
  return here;
}

/// Bytes that a device can fetch while the CPU goes on.
at::Tensor bytes_for(at::Device device, const void* from, std::size_t bytes) {
  at::Tensor here = at::empty({static_cast<std::int64_t>(bytes)},
                              at::TensorOptions().dtype(at::kByte).pinned_memory(device.is_cuda()));
  std::memcpy(here.data_ptr(), from, bytes);
  return here;
}

/// All losses of the step and its counts of correct answers, as take() reads them.
at::Tensor joined(const std::vector<MicroBatchLoss>& losses) {
  std::vector<at::Tensor> all;
  for (const auto& loss : losses) {
    all.push_back(loss.sums.loss.to(at::kDouble).reshape({1}));
    if (loss.sums.correct.defined()) all.push_back(loss.sums.correct.to(at::kDouble).reshape({1}));
  }
  return all.empty() ? at::Tensor() : at::cat(all);
}

}  // namespace

bool LateDecision::takes(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat && models::fused_kernels_for(values) != nullptr;
}

void LateDecision::begin(const Step& step, std::int64_t updates, std::vector<MicroBatchLoss> losses,
                         at::Device device) {
  if (!decision_.defined()) {
    const UpdateDecision first{.count = updates};
    decision_ = bytes_for(device, &first, sizeof first).to(device);
    inputs_ = at::empty({sizeof(UpdateInputs)}, decision_.options());
  }
  // A device has fetched what lies there from the step before: that was waited for.
  const UpdateInputs inputs{.weight = step.weight, .learning_rate = step.learning_rate};
  inputs_here_ = bytes_for(device, &inputs, sizeof inputs);
  inputs_.copy_(inputs_here_, /*non_blocking=*/true);
  under_way_.emplace(UnderWay{.step = step, .losses = std::move(losses)});
  // Before anything captured runs, which may use the memory of what was captured with them.
  if (!device.is_cpu()) under_way_->losses_there = joined(under_way_->losses);
}

const at::Tensor& LateDecision::decide(const at::Tensor& gradients, double clip) {
  const at::Tensor squares = squares_there(gradients);
  models::fused_kernels_for(gradients)->decide(static_cast<UpdateDecision*>(decision_.data_ptr()),
                                               static_cast<const SumOfSquares*>(squares.const_data_ptr()),
                                               clip,
                                               static_cast<const UpdateInputs*>(inputs_.const_data_ptr()),
                                               models::computing_stream(gradients.device()));
  return decision_;
}

void LateDecision::end() {
  const auto device = decision_.device();
  auto& [step, losses, losses_there, numbers, there] = *under_way_;
  if (device.is_cpu()) {
    numbers = decision_.clone();
    return;
  }
  at::Tensor all = decision_.view(at::kDouble);
  if (losses_there.defined()) all = at::cat({all, losses_there});
  numbers = at::empty(all.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(device.is_cuda()));
  numbers.copy_(all, /*non_blocking=*/true);
  there.emplace(moment_of(c10::impl::VirtualGuardImpl(device.type()).getStream(device)));
}

LateDecision::Outcome LateDecision::take() {
  auto [step, losses, losses_there, numbers, there] = std::move(*under_way_);
  under_way_.reset();
  Outcome outcome{.step = step, .losses = std::move(losses), .decision = {}};
  if (there) there->synchronize();
  std::memcpy(&outcome.decision, numbers.const_data_ptr(), sizeof outcome.decision);
  if (!there) return outcome;
  std::int64_t next = kBytes / static_cast<std::int64_t>(sizeof(double));
  for (auto& [index, sums, samples] : outcome.losses) {
    sums.loss = numbers[next++];
    if (sums.correct.defined()) sums.correct = numbers[next++].to(at::kLong);
  }
  return outcome;
}

}  // namespace dtrain::parallel
