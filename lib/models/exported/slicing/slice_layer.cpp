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
        "there are no two linear layers with only element-wise functions between, and no attention between "
        "linear layers, whose weights nothing else reads and which the ranks of a tensor axis could share",
        "--model " + planned_->program.file(), "use data and pipe, such as --mesh data=2,pipe=2");
  }
  for (const LinearPair& pair : cuts.pairs) slice_pair(pair, cuts, group);
  for (const CutAttention& attention : cuts.attentions) slice_attention(attention, cuts, group);
  return flow;
}

const Step& ProgramLayer::step_at(const Place& place) const {
  return planned_->plan.runs[place.run].steps[place.step];
}

void ProgramLayer::hold_part(ValueId value, const PartOfDim& cut) {
  sliced_[value] = cut;
  sliced_[planned_->plan.same[value]] = cut;
}

/// The linear layer at `place`, where this layer has it, with a part of its outputs.
void ProgramLayer::slice_outputs(const Place& place, const Cuts& cuts, TensorGroup& group,
                                 const FeaturePart& part) {
  if (place.run != run_) return;
  const Step& step = step_at(place);
  const Node& node = graph().nodes[step.node];
  const ValueId input = *linear_input(node);
  const auto shared = cuts.shared_inputs.find(input);
  const auto entering = shared == cuts.shared_inputs.end() ? Entering::alone
                        : shared->second == place          ? Entering::for_all
                                                           : Entering::done;
  done_[place.step].operation = linear_into_slices(step, scope(), group, part, entering);
  if (entering != Entering::done) entered_.push_back(input);
  hold_part_of_weight(node);
}

/// Likewise with a part of its inputs.
void ProgramLayer::slice_inputs(const Place& place, TensorGroup& group, const FeaturePart& part) {
  if (place.run != run_) return;
  const Step& step = step_at(place);
  const Node& node = graph().nodes[step.node];
  done_[place.step].operation = linear_out_of_slices(step, scope(), group, part);
  left_.push_back(node.outputs.at(0).values.at(0));
  hold_part_of_weight(node);
}

void ProgramLayer::hold_part_of_weight(const Node& linear) {
  const ValueId weight = *linear_weight(linear);
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

void ProgramLayer::slice_splits(const std::vector<Place>& splits) {
  for (const Place& place : splits) {
    if (place.run == run_) done_[place.step].operation = split_of_part(step_at(place), scope());
  }
}

/// After what else replaces operations.
void ProgramLayer::enter_beside(const std::vector<Beside>& all, TensorGroup& group) {
  for (const auto& [place, value] : all) {
    if (place.run != run_) continue;
    auto& operation = done_[place.step].operation;
    operation = with_entered(std::move(operation), place_of(value), group);
    entered_.push_back(value);
  }
}

void ProgramLayer::slice_pair(const LinearPair& pair, const Cuts& cuts, TensorGroup& group) {
  const Range part = part_of(pair.features, group.rank(), group.size());
  for (const ValueId value : pair.between)
    hold_part(value, {graph()[value].tensor->sizes.size() - 1, pair.features, part.size()});
  for (const auto& [place, parts] : pair.firsts) {
    const FeaturePart features = parts == 1
                                     ? FeaturePart{.part = part}
                                     : FeaturePart{.part = part, .dim = 1, .view = {parts, pair.features}};
    slice_outputs(place, cuts, group, features);
  }
  slice_inputs(pair.second, group, {.part = part});
  slice_reshapes(pair.reshapes);
  slice_splits(pair.splits);
  for (const Place& place : pair.dropouts) {
    if (drops_here(place))
      done_[place.step].operation = dropout_in_pair(step_at(place), scope(), {pair.features, part});
  }
  enter_beside(pair.beside, group);
}

void ProgramLayer::slice_attention(const CutAttention& attention, const Cuts& cuts, TensorGroup& group) {
  const Range part = part_of(attention.groups, group.rank(), group.size());
  const auto whole = attention.groups;
  for (const auto& [value, dim] : attention.between) hold_part(value, {dim, whole, part.size()});
  const auto size_of = [&](ValueId weight, std::size_t dim) {
    return *graph()[weight].tensor->sizes.at(dim).constant();
  };
  for (const auto& [place, parts] : attention.projections) {
    const Node& node = graph().nodes[step_at(place).node];
    const auto outputs = size_of(*linear_weight(node), is_turned(node) ? 1 : 0);
    slice_outputs(place, cuts, group,
                  {.part = part, .dim = 1, .view = {parts, whole, outputs / parts / whole}});
  }
  const Node& output = graph().nodes[step_at(attention.output).node];
  const auto inputs = size_of(*linear_weight(output), is_turned(output) ? 0 : 1);
  slice_inputs(attention.output, group, {.part = part, .dim = 0, .view = {whole, inputs / whole}});
  slice_reshapes(attention.reshapes);
  for (const Place& place : attention.expansions) {
    if (place.run != run_) continue;
    const ValueId made = result_of(graph().nodes[step_at(place).node]);
    done_[place.step].operation = expansion_of_part(step_at(place), scope(), sliced_.at(made));
  }
  slice_splits(attention.splits);
  const auto queries = attention.heads / whole;  // of a group
  const Flow heads{.whole = attention.heads, .part = {queries * part.begin, queries * part.end}};
  for (const Place& place : attention.dropouts) {
    const Node& node = graph().nodes[step_at(place).node];
    if ((calls(node, "dropout") || drops_inside(node)) && drops_here(place))
      done_[place.step].operation = dropout_of_heads(step_at(place), scope(), heads);
  }
  for (const auto& [place, value] : attention.by_head) {
    if (place.run != run_) continue;
    auto& operation = done_[place.step].operation;
    operation = with_heads(std::move(operation), place_of(value), heads.part);
  }
  enter_beside(attention.beside, group);
}

}  // namespace dtrain::models::exported
