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

at::Tensor begun_with(std::int64_t updates, at::Device device) {
  const UpdateDecision decision{.count = updates};
  at::Tensor here = at::empty({kBytes}, at::kByte);
  std::memcpy(here.data_ptr(), &decision, sizeof decision);
  return here.to(device);
}

}  // namespace

bool LateDecision::takes(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat && models::fused_kernels_for(values) != nullptr;
}

const at::Tensor& LateDecision::decide(const Step& step, const at::Tensor& gradients, double clip,
                                       std::int64_t updates, std::vector<MicroBatchLoss> losses) {
  const auto device = gradients.device();
  if (!decision_.defined()) decision_ = begun_with(updates, device);
  const at::Tensor squares = squares_there(gradients);
  models::fused_kernels_for(gradients)->decide(static_cast<UpdateDecision*>(decision_.data_ptr()),
                                               static_cast<const SumOfSquares*>(squares.const_data_ptr()),
                                               clip, step.weight, models::computing_stream(device));
  under_way_.emplace(UnderWay{.step = step, .losses = std::move(losses), .numbers = {}, .there = {}});
  auto& [of, given, numbers, there] = *under_way_;
  if (device.is_cpu()) {
    numbers = decision_.clone();
    return decision_;
  }
  std::vector<at::Tensor> all = {decision_.view(at::kDouble)};
  for (const auto& loss : given) {
    all.push_back(loss.sums.loss.to(at::kDouble).reshape({1}));
    if (loss.sums.correct.defined()) all.push_back(loss.sums.correct.to(at::kDouble).reshape({1}));
  }
  const at::Tensor joined = at::cat(all);
  numbers = at::empty(joined.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(device.is_cuda()));
  numbers.copy_(joined, /*non_blocking=*/true);
  there.emplace(moment_of(c10::impl::VirtualGuardImpl(device.type()).getStream(device)));
  return decision_;
}

LateDecision::Outcome LateDecision::take() {
  auto [step, losses, numbers, there] = std::move(*under_way_);
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
