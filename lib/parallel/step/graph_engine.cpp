#include "parallel/step/graph_engine.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "parallel/device/rank_device.hpp"

namespace dtrain::parallel {
namespace {

void put(const at::Tensor& to, const at::Tensor& from) {
  require(to.sizes() == from.sizes(), "samples of another shape than those of the captured step",
          {.subject = "device graphs", .advice = "use --device-graphs off"});
  to.copy_(from, /*non_blocking=*/true);
}

}  // namespace

GraphEngine::GraphEngine(PipelineEngine& direct, StepCapture& capture, models::Model& model,
                         at::Device device, Tell tell)
    : direct_(direct),
      capture_(capture),
      model_(model),
      device_(device),
      tell_(std::move(tell)),
      replayed_{.step = at::zeros({1}, at::TensorOptions().dtype(at::kInt).device(device)),
                .loss_scale = at::ones({}, at::TensorOptions().device(device))},
      captures_("sizes of steps", tell_) {}

std::vector<MicroBatchLoss> GraphEngine::compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                                 double loss_scale) {
  const Running running{plan, samples};
  const Captured* const captured = captured_for(running, sums);
  if (captured == nullptr) return direct_.compute(plan, samples, sums, loss_scale);
  sums.begin_step(static_cast<int>(plan.micro_batches.size()));
  replayed_.step.fill_(plan.number);
  replayed_.loss_scale.fill_(loss_scale);
  running_ = &running;
  captured->step.replay();
  direct_.read_ahead(plan, samples);
  return captured->losses;
}

/// Null: the step is to be done without a graph.
const GraphEngine::Captured* GraphEngine::captured_for(const Running& running, LocalSums& sums) {
  if (running.plan.micro_batches.empty()) return nullptr;
  Sizes sizes;
  for (const auto& micro_batch : running.plan.micro_batches)
    sizes.emplace_back(micro_batch.index, micro_batch.samples());
  return captures_.find(sizes, [&] { return capture(running, sums); });
}

/// With the samples in it: operations after a capture that failed run on them, and ids out of range would end
/// the device's context.
Samples GraphEngine::memory_for(const Samples& samples) const {
  const auto copy = [this](const at::Tensor& from) {
    return at::empty_like(from, from.options().device(device_)).copy_(from);
  };
  Samples memory;
  for (const auto& input : samples.inputs) memory.inputs.push_back(copy(input));
  const bool own_input = samples.targets.is_same(samples.inputs.at(0));
  memory.targets = own_input ? memory.inputs[0] : copy(samples.targets);
  return memory;
}

std::unique_ptr<GraphEngine::Captured> GraphEngine::capture(const Running& running, LocalSums& sums) {
  auto captured = std::make_unique<Captured>();
  for (const Samples& samples : running.samples.look_ahead(running.plan)) {
    captured->samples.push_back(memory_for(samples));
  }
  free_unused_memory(device_);
  const auto samples_of = [&](std::size_t m) {
    const Samples memory = captured->samples.at(m);
    capture_.repeat([this, memory, m] {
      const at::NoGradGuard no_grad;
      const Samples now = running_->samples.take(running_->plan, m);
      model_.require_known(now.inputs, now.targets);
      for (std::size_t i = 0; i < memory.inputs.size(); ++i) put(memory.inputs[i], now.inputs.at(i));
      if (!memory.targets.is_same(memory.inputs[0])) put(memory.targets, now.targets);
    });
    return memory;
  };
  sums.begin_step(static_cast<int>(running.plan.micro_batches.size()));
  captured->step = capture_.capture([&] {
    captured->losses = direct_.give(running.plan, samples_of, sums, 1.0, replayed_);
    for (models::Buffer* buffer : model_.buffers()) {
      capture_.repeat([buffer, weight = buffer->step_weight] { buffer->step_weight = weight; });
    }
  });
  tell_(fmt::format("a step of {} is replayed in {} parts",
                    counted(static_cast<std::int64_t>(captured->samples.size()), "micro-batch"),
                    captured->step.graphs()));
  return captured;
}

}  // namespace dtrain::parallel
