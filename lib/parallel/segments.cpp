#include "parallel/segments.hpp"

#include <torch/torch.h>

#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

// The graph ends here: what can have a gradient becomes a leaf that will receive one.
models::Tensors cut_graph(const models::Tensors& tensors) {
  models::Tensors leaves;
  leaves.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    leaves.push_back(tensor.requires_grad() ? tensor.detach().set_requires_grad(true) : tensor);
  }
  return leaves;
}

}  // namespace

SegmentWalk::SegmentWalk(models::Model& model, std::vector<std::size_t> cuts) : model_(model) {
  begins_.push_back(0);
  for (const auto cut : cuts) {
    require(cut > begins_.back() && cut < model.layers().size(),
            "a model is cut before a layer it does not have",
            {.subject = model.name(), .advice = "cuts ascend, from 1 to the number of layers - 1"});
    begins_.push_back(cut);
  }
  kept_.resize(begins_.size());
}

std::size_t SegmentWalk::end_of(std::size_t segment) const {
  return segment + 1 < begins_.size() ? begins_[segment + 1] : model_.layers().size();
}

models::Tensors SegmentWalk::forward(models::Tensors inputs, const models::Context& context) {
  for (std::size_t s = 0; s < begins_.size(); ++s) {
    kept_[s].inputs = s == 0 ? std::move(inputs) : cut_graph(kept_[s - 1].outputs);
    auto flowing = kept_[s].inputs;
    for (std::size_t layer = begins_[s]; layer < end_of(s); ++layer) {
      flowing = model_.layers()[layer]->forward(flowing, context);
    }
    kept_[s].outputs = std::move(flowing);
  }
  return kept_.back().outputs;
}

void SegmentWalk::backward(const at::Tensor& loss) {
  torch::autograd::backward({loss}, {});
  for (std::size_t s = begins_.size() - 1; s > 0; --s) {
    // What segment s received as gradients of its inputs are those of segment s - 1's outputs.
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < kept_[s].inputs.size(); ++i) {
      if (!kept_[s].inputs[i].requires_grad() || !kept_[s].inputs[i].grad().defined()) continue;
      outputs.push_back(kept_[s - 1].outputs[i]);
      gradients.push_back(kept_[s].inputs[i].grad());
    }
    kept_[s] = {};  // its activations are free before the next segment needs memory
    if (!outputs.empty()) torch::autograd::backward(outputs, gradients);
  }
  kept_.front() = {};
}

}  // namespace dtrain::parallel
