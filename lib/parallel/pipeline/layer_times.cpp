#include "parallel/pipeline/layer_times.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>

#include "core/clock.hpp"
#include "models/compute/gradient_place.hpp"
#include "parallel/pipeline/segments.hpp"

namespace dtrain::parallel {
namespace {

constexpr int kMicroBatches = 4;
constexpr int kWord =
    4;  // an id that is a word in every vocabulary: behind those with a meaning of their own

/// Keeps a model on a device while it lives.
class Moved {
 public:
  Moved(models::Model& model, at::Device device) : model_(model), device_(device) { move_to(device); }
  ~Moved() { move_to(at::kCPU); }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

 private:
  void move_to(at::Device device) const {
    if (device_.is_cpu()) return;
    const at::NoGradGuard no_grad;
    for (auto* parameter : model_.parameters()) {
      const bool trained = parameter->value.requires_grad();
      parameter->value = parameter->value.detach().to(device).requires_grad_(trained);
    }
    for (auto* buffer : model_.buffers()) buffer->value = buffer->value.to(device);
  }

  models::Model& model_;
  const at::Device device_;
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
               at::Device device) {
  const double start_s = time_there_s(device);
  auto passed = walk.forward(inputs, {.mode = models::Mode::training, .step = 1});
  outputs = passed.outputs();
  models::Tensors gradients;
  for (const auto& output : outputs)
    gradients.push_back(output.requires_grad() ? at::ones_like(output) : at::Tensor());
  walk.backward(passed, gradients);
  return time_there_s(device) - start_s;
}

}  // namespace

std::vector<double> measure_layers(models::Model& model, const std::vector<models::Shape>& inputs, bool ids,
                                   at::Device device) {
  const Moved there(model, device);
  const auto type = model.parameters().front()->value.scalar_type();
  models::Tensors flowing;
  for (const auto& shape : inputs) {
    flowing.push_back(ids ? at::full(shape, kWord, at::TensorOptions().dtype(at::kInt).device(device))
                          : at::rand(shape, at::TensorOptions().dtype(type)).to(device));
  }
  std::vector<double> times;
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    const auto index = static_cast<std::int64_t>(layer);
    const SegmentWalk walk(model, {index, index + 1});
    models::Tensors outputs;
    time_of(walk, flowing, outputs, device);  // allocates
    auto& parameters = model.layers()[layer]->parameters();
    std::deque<models::GradientPlace> places;
    for (auto& parameter : parameters) {
      if (!parameter.frozen) places.emplace_back(parameter).begin_step(kMicroBatches);
    }
    double sum = 0;
    for (int i = 0; i < kMicroBatches; ++i) sum += time_of(walk, flowing, outputs, device);
    times.push_back(sum / kMicroBatches);
    for (auto& output : outputs) output = output.detach();
    flowing = std::move(outputs);
  }
  for (auto* parameter : model.parameters()) parameter->value.mutable_grad().reset();
  return times;
}

}  // namespace dtrain::parallel
