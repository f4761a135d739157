#include "parallel/strategy/late_parts.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace dtrain::parallel {
LateParts::LateParts(const StrategyParts& parts, PartExchange& exchange, int steps)
    : exchange_(exchange),
      queue_(parts.queue),
      clock_(parts.clock),
      steps_(steps),
      charge_(FlatParameters::size_of(parts.model) *
              static_cast<std::int64_t>(c10::elementSize(parts.dtype))),
      means_(parts.data, FlatParameters::size_of(parts.model),
             at::TensorOptions().dtype(parts.dtype).device(parts.device)),
      left_(at::zeros_like(means_.values())) {}

LateParts::~LateParts() {
  const bool waits = std::ranges::any_of(on_the_way_, [](const Part& part) { return part.sent != nullptr; });
  if (waits && !queue_.failed()) queue_.drop("the training has ended while parts of the model travelled");
}

void LateParts::count_step() {
  for (auto& part : on_the_way_) ++part.steps;
}

void LateParts::send(const Range& part, const at::Tensor& values, const at::Tensor& agreed,
                     PartExchange::Weight weight) {
  const at::NoGradGuard no_grad;
  if (clock_ != nullptr) clock_->begin_aside();
  Part sent{.range = part, .sent = exchange_.send(part, agreed, weight, means_)};
  if (clock_ != nullptr) sent.clocked = clock_->end_aside();
  if (sent.sent == nullptr) mean_of(part).copy_(values.narrow(0, part.begin, part.size()));
  on_the_way_.push_back(std::move(sent));
}

bool LateParts::has(const Range& part) const {
  return std::ranges::any_of(on_the_way_, [&part](const Part& other) {
    return other.range.begin < part.end && part.begin < other.range.end;
  });
}

at::Tensor LateParts::mean_of(const Range& part) const {
  return means_.values().narrow(0, part.begin, part.size());
}

void LateParts::receive(Part& part) {
  const at::NoGradGuard no_grad;
  if (part.sent != nullptr) part.sent->receive(mean_of(part.range));
  part.sent = nullptr;
}

LateParts::Arrived LateParts::take() {
  auto& part = on_the_way_.front();
  receive(part);
  if (part.clocked) clock_->await_aside();
  Arrived arrived{.part = part.range, .mean = means_.values(), .steps = part.steps};
  on_the_way_.pop_front();
  return arrived;
}

void LateParts::prepare_state() {
  const at::NoGradGuard no_grad;
  left_.zero_();
  for (auto& part : on_the_way_) {
    receive(part);
    left_.narrow(0, part.range.begin, part.range.size()).fill_(steps_ - part.steps);
  }
}

std::vector<StateView::Flat> LateParts::state() const {
  return {{"late_mean", means_.values()}, {"late_steps", left_}};
}

void LateParts::adopt_state() {
  on_the_way_.clear();
  const auto left = left_.to(at::kCPU, at::kDouble).contiguous();
  const auto* const steps = left.const_data_ptr<double>();
  const auto size = left.numel();
  for (std::int64_t begin = 0, end = 0; begin < size; begin = end) {
    for (end = begin + 1; end < size && steps[end] == steps[begin];) ++end;
    if (steps[begin] < 1) continue;
    const int made = std::max(0, steps_ - static_cast<int>(steps[begin]));
    on_the_way_.push_back({.range = {begin, end}, .sent = nullptr, .steps = made});
  }
  std::ranges::stable_sort(on_the_way_, std::greater<>(), &Part::steps);  // those sent first arrive first
}

}  // namespace dtrain::parallel
