#include "parallel/pipeline/layer_times.hpp"

#include <ATen/ATen.h>

#include <deque>

#include "core/clock.hpp"
#include "models/compute/gradient_place.hpp"
#include "parallel/pipeline/segments.hpp"

namespace dtrain::parallel {
namespace {

constexpr int kMicroBatches = 4;
constexpr int kWord =
    4;  // an id that is a word in every vocabulary: behind those with a meaning of their own

double time_of(const SegmentWalk& walk, const models::Tensors& inputs, models::Tensors& outputs) {
  const double start_s = steady_s();
  auto passed = walk.forward(inputs, {.mode = models::Mode::training, .step = 1});
  outputs = passed.outputs();
  models::Tensors gradients;
  for (const auto& output : outputs)
    gradients.push_back(output.requires_grad() ? at::ones_like(output) : at::Tensor());
  walk.backward(passed, gradients);
  return steady_s() - start_s;
}

}  // namespace

std::vector<double> measure_layers(models::Model& model, const std::vector<models::Shape>& inputs, bool ids) {
  const auto type = model.parameters().front()->value.scalar_type();
  models::Tensors flowing;
  for (const auto& shape : inputs) {
    flowing.push_back(ids ? at::full(shape, kWord, at::TensorOptions().dtype(at::kInt))
                          : at::rand(shape, at::TensorOptions().dtype(type)));
  }
  std::vector<double> times;
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    const auto index = static_cast<std::int64_t>(layer);
    const SegmentWalk walk(model, {index, index + 1});
    models::Tensors outputs;
    time_of(walk, flowing, outputs);  // allocates
    auto& parameters = model.layers()[layer]->parameters();
    std::deque<models::GradientPlace> places;
    for (auto& parameter : parameters) {
      if (!parameter.frozen) places.emplace_back(parameter).begin_step(kMicroBatches);
    }
    double sum = 0;
    for (int i = 0; i < kMicroBatches; ++i) sum += time_of(walk, flowing, outputs);
    times.push_back(sum / kMicroBatches);
    for (auto& output : outputs) output = output.detach();
    flowing = std::move(outputs);
  }
  for (auto* parameter : model.parameters()) parameter->value.mutable_grad().reset();
  return times;
}

}  // namespace dtrain::parallel
