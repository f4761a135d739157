#include "parallel/pipeline/segments.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

// The graph ends here: what can have a gradient becomes a leaf that will receive one.
models::Tensors cut_graph(const models::Tensors& tensors) {
  models::Tensors leaves;
  leaves.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    leaves.push_back(tensor.is_floating_point() ? tensor.detach().set_requires_grad(true) : tensor);
  }
  return leaves;
}

}  // namespace

Segments repeat_first(Range layers, std::int64_t count) {
  count = std::min(count, layers.size());
  Segments segments{.cuts = {}, .repeated = static_cast<std::size_t>(count)};
  for (std::int64_t i = 1; i <= count && i < layers.size(); ++i)
    segments.cuts.push_back(static_cast<std::size_t>(layers.begin + i));
  return segments;
}

Segments each_layer(Range layers, std::int64_t count) {
  auto segments = repeat_first(layers, count);
  segments.cuts.clear();
  for (auto layer = layers.begin + 1; layer < layers.end; ++layer)
    segments.cuts.push_back(static_cast<std::size_t>(layer));
  return segments;
}

SegmentWalk::SegmentWalk(models::Model& model, Range layers, Segments segments, LayerWeights* weights)
    : model_(model), layers_(layers), repeated_(segments.repeated), weights_(weights) {
  begins_.push_back(static_cast<std::size_t>(layers.begin));
  for (const auto cut : segments.cuts) {
    require(cut > begins_.back() && cut < static_cast<std::size_t>(layers.end),
            "a model is cut before a layer it does not have",
            {.subject = model.name(), .advice = "cuts ascend, and lie between two layers of the stage"});
    begins_.push_back(cut);
  }
}

std::size_t SegmentWalk::end_of(std::size_t segment) const {
  return segment + 1 < begins_.size() ? begins_[segment + 1] : static_cast<std::size_t>(layers_.end);
}

void SegmentWalk::bring_forward(std::size_t segment) const {
  if (weights_ == nullptr) return;
  const std::size_t next = segment + 1 < begins_.size() ? segment + 1 : segment;  // where backward begins
  weights_->bring(static_cast<std::int64_t>(begins_[segment]), static_cast<std::int64_t>(begins_[next]));
}

void SegmentWalk::bring_back(std::size_t segment) const {
  if (weights_ == nullptr) return;
  std::optional<std::int64_t> next;
  if (segment > 0) next = static_cast<std::int64_t>(begins_[segment - 1]);
  weights_->bring(static_cast<std::int64_t>(begins_[segment]), next);
}

void SegmentWalk::drop(std::size_t segment, LayerWeights::Pass pass) const {
  if (weights_ != nullptr) weights_->drop(static_cast<std::int64_t>(begins_[segment]), pass);
}

void SegmentWalk::idle_forward() const {
  for (std::size_t s = 0; s < begins_.size(); ++s) {
    bring_forward(s);
    drop(s, LayerWeights::Pass::forward);
  }
}

void SegmentWalk::idle_back() const {
  for (std::size_t s = begins_.size(); s-- > 0;) {
    bring_back(s);
    drop(s, LayerWeights::Pass::backward);
  }
}

models::Tensors SegmentWalk::run(std::size_t segment, models::Tensors flowing,
                                 const models::Context& context) const {
  const auto& layers = model_.layers();
  models::Context of_layer = context;
  for (std::size_t layer = begins_[segment]; layer < end_of(segment); ++layer) {
    of_layer.joins_next = layer + 1 < end_of(segment) && layers[layer + 1]->takes_pairs();
    flowing = layers[layer]->run(flowing, of_layer);
  }
  return flowing;
}

Passed SegmentWalk::forward(models::Tensors inputs, const models::Context& context) const {
  Passed passed{.context = context, .segments = std::vector<Passed::Segment>(begins_.size())};
  for (std::size_t s = 0; s < begins_.size(); ++s) {
    auto& [segment_inputs, outputs] = passed.segments[s];
    if (s > 0) {
      segment_inputs = cut_graph(passed.segments[s - 1].outputs);
    } else {
      segment_inputs = layers_.begin > 0 ? cut_graph(inputs) : std::move(inputs);
    }
    const at::AutoGradMode mode(s >= repeated_);
    bring_forward(s);
    outputs = run(s, segment_inputs, context);
    drop(s, LayerWeights::Pass::forward);
  }
  // A loss is differentiated with respect to these.
  if (begins_.size() <= repeated_) passed.segments.back().outputs = cut_graph(passed.outputs());
  return passed;
}

models::Tensors SegmentWalk::backward(Passed& passed, const at::Tensor& loss) const {
  const std::size_t last = begins_.size() - 1;
  if (last >= repeated_) bring_back(last);
  torch::autograd::backward({loss}, {});
  if (last >= repeated_) {
    drop(last, LayerWeights::Pass::backward);
    auto gradients = input_gradients(passed.segments[last]);
    return last == 0 ? gradients : walk_back(passed, last - 1, std::move(gradients));
  }
  models::Tensors gradients;
  for (const auto& output : passed.outputs()) {
    gradients.push_back(output.requires_grad() ? output.grad() : at::Tensor());
  }
  return walk_back(passed, last, std::move(gradients));
}

models::Tensors SegmentWalk::backward(Passed& passed, const models::Tensors& output_gradients) const {
  return walk_back(passed, begins_.size() - 1, output_gradients);
}

models::Tensors SegmentWalk::walk_back(Passed& passed, std::size_t segment, models::Tensors gradients) const {
  for (std::size_t s = segment + 1; s-- > 0;) {
    auto& kept = passed.segments[s];
    bring_back(s);
    if (s < repeated_) {
      auto context = passed.context;
      context.pass = models::Pass::repeated;
      kept.outputs = run(s, kept.inputs, context);
    }
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> given;
    for (std::size_t i = 0; i < kept.outputs.size(); ++i) {
      if (!kept.outputs[i].requires_grad() || !gradients.at(i).defined()) continue;
      outputs.push_back(kept.outputs[i]);
      given.push_back(gradients[i]);
    }
    if (!outputs.empty()) torch::autograd::backward(outputs, given);
    drop(s, LayerWeights::Pass::backward);
    gradients = input_gradients(kept);
  }
  return gradients;
}

// The segment's activations are free before the next one needs memory.
models::Tensors SegmentWalk::input_gradients(Passed::Segment& segment) const {
  models::Tensors gradients;
  for (const auto& input : segment.inputs) {
    gradients.push_back(input.requires_grad() ? input.grad() : at::Tensor());
  }
  segment = {};
  return gradients;
}

}  // namespace dtrain::parallel
