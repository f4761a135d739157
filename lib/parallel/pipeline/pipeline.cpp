#include "parallel/pipeline/pipeline.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

namespace dtrain::parallel {
namespace {

/// What a schedule has of the first `count` micro-batches.
Schedule first_of(Schedule schedule, std::ptrdiff_t count) {
  schedule.micro_batches = static_cast<int>(std::min<std::ptrdiff_t>(schedule.micro_batches, count));
  for (auto& actions : schedule.of_rank)
    std::erase_if(actions, [&](const Action& action) { return action.micro_batch >= count; });
  return schedule;
}

}  // namespace

std::vector<const models::Parameter*> parameters_met_again(models::Model& model, const StageCuts& cuts,
                                                           std::int64_t repeated_layers) {
  const auto first_of_segment = [&](std::size_t layer) {
    const Range& stage = cuts.layers[static_cast<std::size_t>(cuts.stage_of(layer))];
    return std::min(static_cast<std::int64_t>(layer), stage.begin + repeated_layers);
  };
  std::vector<const models::Parameter*> met_again;
  std::set<std::pair<const models::Parameter*, std::int64_t>> met;  // by the first layer of a segment
  for (const auto& tied : model.borrowed()) {
    if (cuts.rank_of(cuts.stage_of(tied.owner)) != cuts.rank_of(cuts.stage_of(tied.borrower))) continue;
    met.emplace(tied.parameter, first_of_segment(tied.owner));
    const bool is_further = met.emplace(tied.parameter, first_of_segment(tied.borrower)).second;
    if (is_further) met_again.push_back(tied.parameter);
  }
  return met_again;
}

Pipeline::Pipeline(const Parts& parts)
    : parts_(parts),
      last_(parts.cuts.stages() - 1),
      messages_(parts.pipe, parts.shapes, parts.device),
      evaluation_messages_(parts.pipe, parts.shapes, parts.device) {
  for (int stage = parts.pipe.rank(); stage <= last_; stage += parts.pipe.size()) {
    const Range& layers = layers_of(stage);
    walks_.try_emplace(stage, parts.model, layers, repeat_first(layers, parts.repeated_layers));
  }
}

std::vector<const models::Parameter*> Pipeline::met_again() const {
  // Each layer is then a segment of its own, as where all are repeated.
  const std::int64_t apart = weights_ != nullptr ? std::ssize(parts_.model.layers()) : parts_.repeated_layers;
  return parameters_met_again(parts_.model, parts_.cuts, apart);
}

void Pipeline::keep_weights(LayerWeights& weights) {
  weights_ = &weights;
  walks_.clear();
  for (int stage = parts_.pipe.rank(); stage <= last_; stage += parts_.pipe.size()) {
    const Range& layers = layers_of(stage);
    walks_.try_emplace(stage, parts_.model, layers, each_layer(layers, parts_.repeated_layers), &weights);
  }
}

/// A micro-batch that this copy does not have, and another one has.
void Pipeline::idle(const Action& action) {
  const SegmentWalk& walk = walks_.at(action.stage);
  action.kind == Action::Kind::forward ? walk.idle_forward() : walk.idle_back();
}

void Pipeline::bring(std::int64_t layer, const Range& layers) {
  if (weights_ == nullptr) return;
  weights_->bring(layer, layer + 1 < layers.end ? std::optional(layer + 1) : std::nullopt);
}

void Pipeline::drop(std::int64_t layer) {
  if (weights_ != nullptr) weights_->drop(layer, LayerWeights::Pass::forward);
}

models::Tensors Pipeline::received(StageMessages& messages, const Action& action) {
  const ScopedSpan span(parts_.sink, Phase::pipeline_idle, "wait for activations");
  return messages.receive_activations(action.stage, action.micro_batch);
}

void Pipeline::train(const Schedule& schedule, const std::vector<std::int64_t>& samples,
                     const Training& work) {
  if (schedule.micro_batches > std::ssize(samples)) {
    messages_.begin(first_of(schedule, std::ssize(samples)), samples);
  } else {
    messages_.begin(schedule, samples);
  }
  for (const Action& action : schedule.of_rank.at(static_cast<std::size_t>(parts_.pipe.rank()))) {
    if (action.micro_batch >= std::ssize(samples)) {
      idle(action);
    } else if (action.kind == Action::Kind::forward) {
      forward(action, work);
    } else {
      backward(action, work);
    }
    if (schedule.ranks == 1) continue;
    parts_.queue.progress();
    messages_.progress();
  }
  const ScopedSpan span(parts_.sink, Phase::pipeline_idle, "wait for receivers");
  messages_.finish();
}

void Pipeline::forward(const Action& action, const Training& work) {
  auto inputs = action.stage == 0 ? work.inputs(action.micro_batch) : received(messages_, action);
  const ScopedSpan span(parts_.sink, Phase::forward, "forward");
  Kept& kept = kept_[{action.stage, action.micro_batch}];
  kept.passed = walks_.at(action.stage).forward(std::move(inputs), work.context(action.micro_batch));
  if (action.stage == last_) {
    kept.loss = work.loss(action.micro_batch, kept.passed.outputs());
  } else {
    messages_.send_activations(action.stage + 1, action.micro_batch, kept.passed.outputs());
  }
}

void Pipeline::backward(const Action& action, const Training& work) {
  models::Tensors gradients;
  if (action.stage < last_) {
    const ScopedSpan span(parts_.sink, Phase::pipeline_idle, "wait for gradients");
    gradients = messages_.receive_gradients(action.stage, action.micro_batch);
  }
  const ScopedSpan span(parts_.sink, Phase::backward, "backward");
  auto kept = kept_.extract({action.stage, action.micro_batch});
  auto& [passed, loss] = kept.mapped();
  const SegmentWalk& walk = walks_.at(action.stage);
  auto on = action.stage == last_ ? walk.backward(passed, loss) : walk.backward(passed, gradients);
  if (work.taken_back) work.taken_back(action.micro_batch);
  if (action.stage > 0) messages_.send_gradients(action.stage - 1, action.micro_batch, on);
}

void Pipeline::evaluate(const Schedule& schedule, const std::vector<std::int64_t>& samples,
                        const Evaluation& work) {
  const at::NoGradGuard no_grad;
  const auto all = weights_ == nullptr ? schedule
                                       : make_forward_schedule(schedule.ranks, schedule.stages_per_rank,
                                                               std::max(work.most, schedule.micro_batches));
  evaluation_messages_.begin(first_of(all, std::ssize(samples)), samples);
  // More than a rank sends within two groups of micro-batches; avoids circular waits.
  const auto most = static_cast<std::size_t>(4 * schedule.stages());
  for (const Action& action : all.of_rank.at(static_cast<std::size_t>(parts_.pipe.rank()))) {
    if (action.micro_batch < std::ssize(samples)) {
      evaluate_stage(action, work);
    } else {
      bring_idle(layers_of(action.stage));
    }
    if (schedule.ranks == 1) continue;
    parts_.queue.progress();
    evaluation_messages_.progress();
    evaluation_messages_.limit_outgoing(most);
  }
  evaluation_messages_.finish();
}

void Pipeline::bring_idle(const Range& layers) {
  for (auto layer = layers.begin; layer < layers.end; ++layer) {
    bring(layer, layers);
    drop(layer);
  }
}

void Pipeline::evaluate_stage(const Action& action, const Evaluation& work) {
  const Range& layers = layers_of(action.stage);
  auto flowing = action.stage == 0 ? work.inputs(action.micro_batch) : received(evaluation_messages_, action);
  const auto code_layer = work.code_layer ? static_cast<std::int64_t>(*work.code_layer) : -1;
  at::Tensor codes;
  if (code_layer >= 0 && code_layer < layers.begin) {  // they travel along
    codes = flowing.back();
    flowing.pop_back();
  }
  for (auto layer = layers.begin; layer < layers.end; ++layer) {
    bring(layer, layers);
    flowing = parts_.model.layers()[static_cast<std::size_t>(layer)]->run(flowing, work.context);
    drop(layer);
    if (layer == code_layer) codes = flowing.at(0).clone();  // the next layer may overwrite it
  }
  if (action.stage == last_) return work.outputs(action.micro_batch, flowing, codes);
  if (codes.defined()) flowing.push_back(codes);
  evaluation_messages_.send_activations(action.stage + 1, action.micro_batch, flowing);
}

}  // namespace dtrain::parallel
