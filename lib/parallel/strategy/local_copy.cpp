#include "parallel/strategy/local_copy.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <span>

#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"
#include "parallel/gradients/squares.hpp"
#include "parallel/strategy/flat_ranges.hpp"

namespace dtrain::parallel {
namespace {

at::TensorOptions options_of(const StrategyParts& parts) {
  return at::TensorOptions().dtype(parts.dtype).device(parts.device);
}

std::int64_t bytes_of(const StrategyParts& parts) {
  return FlatParameters::size_of(parts.model) * static_cast<std::int64_t>(c10::elementSize(parts.dtype));
}

BucketConfig buckets_of(const StrategyParts& parts) {
  BucketConfig config = parts.buckets;
  config.update = BucketConfig::Update::everything;
  return config;
}

}  // namespace

LocalCopy::LocalCopy(const StrategyParts& parts)
    : parts_(parts),
      charge_(bytes_of(parts)),
      memory_(parts.data, FlatParameters::size_of(parts.model), options_of(parts)),
      parameters_(parts.model, memory_.values(), FlatParameters::Values::put),
      optimizer_(optim::make_optimizer(parts.setting.optimizer, parameters_.size(),
                                       update_ranges(parts, parameters_), parameters_.values().options())),
      gradients_(parameters_, parts.data, parts.queue, buckets_of(parts),
                 CollectedGradients{.left_out = nullptr, .met_again = parts.engine.met_again()}),
      statistics_(parts.model, parts.data),
      tied_(parts.model, parts.cuts, parts.pipe, gradients_),
      counted_(counted_parts(parts, parameters_, std::vector<Range>{{0, parameters_.size()}})),
      counted_own_(counted_parts(parts, parameters_, gradients_.own_parts())) {
  adopt_weights();
}

void LocalCopy::adopt_weights() {
  broadcast_parameters(parts_.data, parameters_.values());
  broadcast_buffers(parts_.data, parts_.model);
  tied_.exchange_values();
}

void LocalCopy::begin_step(int micro_batches) {
  gradients_.begin_step(micro_batches);
  statistics_.begin_step();
  tied_.begin_step();
}

LocalCopy::Pass LocalCopy::compute(const StepPlan& plan, SampleSource& samples, Sums sums) {
  Pass pass;
  using Exchange = GradientBuckets::Exchange;
  gradients_.exchange(sums == Sums::of_all ? Exchange::sums : Exchange::nothing);
  const auto losses = on_cpu(parts_.engine.compute(plan, samples, *this, 1.0));
  gradients_.finish([this] { tied_.exchange_gradients(); });
  if (sums == Sums::of_all) statistics_.exchange();
  for (const auto& [index, loss, count] : losses) pass.own.add(loss, count);
  pass.own.micro_batches += static_cast<double>(losses.size());
  pass.loss = pass.own.loss;
  pass.weight = pass.own.weight;
  if (!parts_.counts_common) pass.own.leave_samples_out();
  measure(pass, sums);
  return pass;
}

/// The norm, and what the other stages and slices of this copy know.
void LocalCopy::measure(Pass& pass, Sums sums) {
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "norm");
    const auto& counted = sums == Sums::of_all ? counted_own_ : counted_;
    for (const auto& squares : squares_of(gradients_.gradients(), counted)) {
      pass.own.gradient_squares += squares.sum;
      pass.own.non_finite += static_cast<double>(squares.non_finite);
    }
  }
  std::array<double, 4> all = {pass.own.gradient_squares, pass.own.non_finite, pass.loss, pass.weight};
  const std::span<double> message(all);
  // Ranks of a tensor group have the same losses, and each its part of the gradient.
  if (parts_.tensor.size() > 1)
    parts_.tensor.all_reduce(comm::Buffer::of(message.first(2)), comm::ReduceOp::sum).wait();
  if (parts_.pipe.size() > 1) parts_.pipe.all_reduce(comm::Buffer::of(message), comm::ReduceOp::sum).wait();
  pass.squares = all[0];
  pass.non_finite = all[1];
  pass.loss = all[2];
  pass.weight = all[3];
}

void LocalCopy::update(double scale, double learning_rate, std::int64_t number) {
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
    optimizer_->step(parameters_.values(), gradients_.gradients(), scale, learning_rate, number);
  }
  statistics_.apply();
  tied_.exchange_values();
}

void LocalCopy::average(double share) {
  if (parts_.data.size() > 1) take_sum({0, parameters_.size()}, share);
  average_buffers(share);
  tied_.exchange_values();
}

void LocalCopy::take_sum(const Range& part, double weight) {
  const at::NoGradGuard no_grad;
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "weigh");
    parameters_.values().narrow(0, part.begin, part.size()).mul_(weight);
  }
  memory_.take_in(
      memory_.group().all_reduce(memory_.outgoing(part), comm::ReduceOp::sum, parts_.buckets.algorithm),
      part);
}

double LocalCopy::add_up(const Range& part, double weight) {
  double weights = weight;
  const auto sum = parts_.data.all_reduce(comm::Buffer::of(std::span(&weights, 1)), comm::ReduceOp::sum);
  take_sum(part, weight);
  sum.wait();
  return weights;
}

void LocalCopy::sum_over_copies(at::Tensor& values) {
  const at::NoGradGuard no_grad;
  if (parts_.data.size() == 1) return;
  const auto [group, place] = carrier_of(parts_.data, values.device());
  const auto here = values.to(place);
  group.all_reduce(buffer_of(here), comm::ReduceOp::sum, parts_.buckets.algorithm).follow();
  if (!here.is_same(values)) values.copy_(here);
}

void LocalCopy::average_optimizer(double share) {
  const at::NoGradGuard no_grad;
  for (const auto& state : optimizer_->state()) {
    auto values = state.value;
    values.mul_(share);
    sum_over_copies(values);
  }
}

void LocalCopy::reset_optimizer() {
  const at::NoGradGuard no_grad;
  for (const auto& state : optimizer_->state()) state.value.zero_();
}

// A copy without samples in a step does not count it, and copies at their own pace make different numbers.
void LocalCopy::agree_on_counters() {
  std::vector<models::Buffer*> counters;
  std::vector<std::int64_t> steps;
  for (auto* buffer : parts_.model.buffers()) {
    if (buffer->update != models::Buffer::Update::count_steps) continue;
    counters.push_back(buffer);
    steps.push_back(buffer->value.item<std::int64_t>());
  }
  if (steps.empty()) return;
  parts_.data.all_reduce(comm::Buffer::of(std::span(steps)), comm::ReduceOp::max).wait();
  for (std::size_t i = 0; i < counters.size(); ++i) counters[i]->value.fill_(steps[i]);
}

void LocalCopy::average_buffers(double share) {
  const at::NoGradGuard no_grad;
  agree_on_counters();
  std::vector<models::Buffer*> averaged;
  std::vector<at::Tensor> flat;
  for (auto* buffer : parts_.model.buffers()) {
    if (buffer->update != models::Buffer::Update::moving_mean) continue;
    averaged.push_back(buffer);
    flat.push_back(buffer->value.flatten().to(at::kDouble));
  }
  if (flat.empty()) return;
  auto values = at::cat(flat).mul_(share);
  sum_over_copies(values);
  std::int64_t next = 0;
  for (auto* buffer : averaged) {
    buffer->value.copy_(values.narrow(0, next, buffer->value.numel()).reshape(buffer->value.sizes()));
    next += buffer->value.numel();
  }
}

}  // namespace dtrain::parallel
