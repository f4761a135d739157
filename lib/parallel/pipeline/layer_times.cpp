#include "parallel/pipeline/layer_times.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "core/clock.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/compute/gradient_place.hpp"
#include "parallel/pipeline/segments.hpp"

namespace dtrain::parallel {
namespace {

constexpr int kMicroBatches = 4;
// An id that is a word in a vocabulary with special ids: behind those.
constexpr std::int64_t kWord = 4;

/// Other values of parameters, which have their own again when it ends.
class OtherValues {
 public:
  OtherValues() = default;
  ~OtherValues() {
    for (const auto& [parameter, own] : parameters_) parameter->value = own;
  }
  OtherValues(const OtherValues&) = delete;
  OtherValues& operator=(const OtherValues&) = delete;

  void set(models::Parameter& parameter, at::Tensor value) {
    parameters_.emplace_back(&parameter, std::exchange(parameter.value, std::move(value)));
  }

 private:
  std::vector<std::pair<models::Parameter*, at::Tensor>> parameters_;  // and its own value
};

/// Parameters without memory get the run's type: a layer without parameters asks those of the others what to
/// compute in.
void give_type(models::Model& model, at::ScalarType type, OtherValues& values) {
  for (auto* parameter : model.parameters()) {
    const at::Tensor& own = parameter->value;
    if (own.is_meta()) values.set(*parameter, at::empty_like(own, own.options().dtype(type)));
  }
}

/// Gives a layer memory for its parameters, with their first values, and buffers of its own while it lives:
/// in the type and on the device of a run.
class Lent {
 public:
  Lent(models::Layer& layer, const TimedRun& run) : layer_(layer), buffers_(layer.buffers()) {
    const at::NoGradGuard no_grad;
    for (auto& parameter : layer.parameters()) lend(parameter, run);
    for (const auto* use : layer.borrowed()) lend(use->parameter(), run);
    for (auto& buffer : layer.buffers()) {
      const auto type = buffer.value.scalar_type();
      const bool exact = buffer.update == models::Buffer::Update::constant && type == at::kDouble;
      const auto of_run = at::isFloatingType(type) && !exact ? run.type : type;
      buffer.value = buffer.value.to(run.device, of_run, /*non_blocking=*/false, /*copy=*/true);
      if (buffer.step_sum.defined()) buffer.step_sum = at::zeros_like(buffer.step_sum).to(run.device);
    }
  }
  ~Lent() { layer_.buffers() = buffers_; }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  void lend(models::Parameter& parameter, const TimedRun& run) {
    // Strides stay: channels-last weights are channels-last on each device.
    auto lent = at::empty_like(parameter.value, parameter.value.options().dtype(run.type).device(run.device));
    lent.copy_(models::first_values(parameter, run.seed));
    values_.set(parameter, lent.set_requires_grad(!parameter.frozen));
  }

  models::Layer& layer_;
  OtherValues values_;
  std::vector<models::Buffer> buffers_;  // to give back
};

/// Once the device has done what it was given.
double time_there_s(at::Device device) {
  if (!device.is_cpu()) {
    c10::Event done(device.type());
    done.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    done.synchronize();
  }
  return steady_s();
}

double time_of(const SegmentWalk& walk, const models::Tensors& inputs, models::Tensors& outputs,
               const TimedRun& run) {
  const double start_s = time_there_s(run.device);
  auto passed = walk.forward(inputs, {.mode = models::Mode::training,
                                      .seed = run.seed,
                                      .step = 1,
                                      .half = run.half,
                                      .kernels = run.kernels,
                                      .as_sent = run.reproducible});
  outputs = passed.outputs();
  models::Tensors gradients;
  for (const auto& output : outputs)
    gradients.push_back(output.requires_grad() ? at::ones_like(output) : at::Tensor());
  walk.backward(passed, gradients);
  return time_there_s(run.device) - start_s;
}

}  // namespace

std::vector<double> measure_layers(models::Model& model, const std::vector<models::Shape>& inputs,
                                   const TimedRun& run) {
  const auto id = std::min(kWord, run.vocabulary - 1);
  models::Tensors flowing;
  for (const auto& shape : inputs) {
    flowing.push_back(run.vocabulary > 0
                          ? at::full(shape, id, at::TensorOptions().dtype(at::kInt).device(run.device))
                          : at::rand(shape, at::TensorOptions().dtype(run.type)).to(run.device));
  }
  OtherValues typed;
  give_type(model, run.type, typed);
  std::vector<double> times;
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    const Lent lent(*model.layers()[layer], run);
    const auto index = static_cast<std::int64_t>(layer);
    const SegmentWalk walk(model, {index, index + 1});
    models::Tensors outputs;
    time_of(walk, flowing, outputs, run);  // allocates
    std::deque<models::GradientPlace> places;
    for (auto& parameter : model.layers()[layer]->parameters()) {
      if (!parameter.frozen) places.emplace_back(parameter).begin_step(kMicroBatches);
    }
    double sum = 0;
    for (int i = 0; i < kMicroBatches; ++i) sum += time_of(walk, flowing, outputs, run);
    times.push_back(sum / kMicroBatches);
    for (auto& output : outputs) output = output.detach();
    flowing = std::move(outputs);
  }
  return times;
}

}  // namespace dtrain::parallel
