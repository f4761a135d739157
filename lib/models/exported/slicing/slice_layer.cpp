#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "models/exported/operations/own_operations.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/program_layer.hpp"
#include "models/exported/slicing/cuts.hpp"
#include "models/exported/slicing/node_search.hpp"
#include "models/exported/slicing/sliced_linear.hpp"

namespace dtrain::models::exported {
namespace {

/// Attention with a probability to drop weights.
bool drops_inside(const Node& node) {
  const auto* p = node.find("dropout_p");
  if (p == nullptr) return false;
  return p->kind == Argument::Kind::real ? p->reals.at(0) != 0 : !p->sizes.empty() && p->sizes[0].number != 0;
}

}  // namespace

Flow ProgramLayer::slice(TensorGroup& group, const Flow& flow) {
  const auto cuts = find_cuts(*planned_, group.size());
  if (cuts.empty() && !cuts.narrow.empty()) {
    const auto& widest = *std::ranges::max_element(cuts.narrow, {}, &Cuts::Narrow::parts);
    throw usage_error(fmt::format("{} has {} heads or features, fewer than the ranks of the tensor axis",
                                  widest.name, widest.parts),
                      fmt::format("--mesh tensor={}", group.size()),
                      fmt::format("use tensor={} or less", widest.parts));
  }
  if (cuts.empty()) {
    throw usage_error(
        "there are no two linear layers with only an element-wise function between, and no attention between "
        "linear layers, which the ranks of a tensor axis could share; a trained number or mask between keeps "
        "them whole",
        "--model " + planned_->program.file(), "use data and pipe, such as --mesh data=2,pipe=2");
  }
  for (const LinearPair& pair : cuts.pairs) slice_pair(pair, group);
  for (const CutAttention& attention : cuts.attentions) slice_attention(attention, group);
  return flow;
}

const Step& ProgramLayer::step_at(const Place& place) const {
  return planned_->plan.runs[place.run].steps[place.step];
}

void ProgramLayer::hold_part(ValueId value, const PartOfDim& cut) {
  sliced_[value] = cut;
  sliced_[planned_->plan.same[value]] = cut;
}

/// The linear layer at `place`, where this layer has it.
void ProgramLayer::slice_linear(const Place& place, TensorGroup& group, const FeaturePart& part, Side side) {
  if (place.run != run_) return;
  const Step& step = step_at(place);
  const Node& node = graph().nodes[step.node];
  auto& operation = done_[place.step].operation;
  if (side == Side::outputs) {
    operation = linear_into_slices(step, scope(), group, part);
    entered_.push_back(*linear_input(node));
  } else {
    operation = linear_out_of_slices(step, scope(), group, part);
    left_.push_back(node.outputs.at(0).values.at(0));
  }
  const ValueId weight = *linear_weight(node);
  const auto* held = parameter_of(weight);
  for (std::size_t dim = 0; held != nullptr && dim < 2; ++dim) {
    const auto extent = held->value.size(static_cast<std::int64_t>(dim));
    const auto whole = graph()[weight].tensor->sizes.at(dim).constant().value_or(extent);
    if (whole != extent) hold_part(weight, {dim, whole, extent});
  }
}

/// One that does nothing where the others train is LibTorch's.
bool ProgramLayer::drops_here(const Place& place) const {
  return place.run == run_ && drops_in_training(graph().nodes[step_at(place).node], planned_->in_training);
}

void ProgramLayer::slice_reshapes(const std::vector<Place>& reshapes) {
  for (const Place& place : reshapes) {
    if (place.run != run_) continue;
    const ValueId made = result_of(graph().nodes[step_at(place).node]);
    done_[place.step].operation = reshape_of_part(step_at(place), scope(), sliced_.at(made));
  }
}

void ProgramLayer::slice_pair(const LinearPair& pair, TensorGroup& group) {
  const Range part = part_of(pair.features, group.rank(), group.size());
  for (const ValueId value : pair.between)
    hold_part(value, {graph()[value].tensor->sizes.size() - 1, pair.features, part.size()});
  slice_linear(pair.first, group, {.part = part}, Side::outputs);
  slice_linear(pair.second, group, {.part = part}, Side::inputs);
  slice_reshapes(pair.reshapes);
  for (const Place& place : pair.dropouts) {
    if (drops_here(place))
      done_[place.step].operation = dropout_in_pair(step_at(place), scope(), {pair.features, part});
  }
}

void ProgramLayer::slice_attention(const CutAttention& attention, TensorGroup& group) {
  const Range part = part_of(attention.heads, group.rank(), group.size());
  for (const auto& [value, dim] : attention.between) hold_part(value, {dim, attention.heads, part.size()});
  for (const auto& [place, parts] : attention.projections) {
    const Shape view = {parts, attention.heads, attention.width};
    slice_linear(place, group, {.part = part, .dim = 1, .view = view}, Side::outputs);
  }
  slice_linear(attention.output, group, {.part = part, .dim = 0, .view = {attention.heads, attention.width}},
               Side::inputs);
  slice_reshapes(attention.reshapes);
  for (const Place& place : attention.splits) {
    if (place.run == run_) done_[place.step].operation = split_of_part(step_at(place), scope());
  }
  const Flow heads{.whole = attention.heads, .part = part};
  for (const Place& place : attention.dropouts) {
    const Node& node = graph().nodes[step_at(place).node];
    if ((calls(node, "dropout") || drops_inside(node)) && drops_here(place))
      done_[place.step].operation = dropout_of_heads(step_at(place), scope(), heads);
  }
}

}  // namespace dtrain::models::exported
