// A program's layer: its parameters, buffers and constants.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "models/exported/program_layer.hpp"

namespace dtrain::models::exported {
namespace {

/// Of checkpoints, for a buffer of this type: one that holds each of its values.
at::ScalarType kept_type(at::ScalarType type) {
  if (at::isFloatingType(type)) return type == at::kDouble ? at::kDouble : at::kFloat;
  return type == at::kLong ? at::kLong : at::kInt;
}

}  // namespace

ProgramLayer::ProgramLayer(std::shared_ptr<const PlannedProgram> planned, std::size_t run,
                           const std::vector<std::unique_ptr<Layer>>& before)
    : Layer(planned->plan.runs.at(run).name), planned_(std::move(planned)), run_(run) {
  for (const auto& flowing : own_run().inputs) {
    if (flowing.value) place_of(*flowing.value);
  }
  // Others borrow from it before it gets the unused ones, too.
  if (run_ == 0) parameters_.reserve(graph().inputs_of(GraphInput::Kind::parameter).size());
  std::set<ValueId> seen;
  for (const Step& step : own_run().steps) {
    for (const auto& [name, argument] : graph().nodes[step.node].inputs) {
      for (const auto& given : argument.values) {
        if (!given || !seen.insert(*given).second) continue;
        const auto* input = planned_->input_of(*given);
        if (input == nullptr || input->kind == GraphInput::Kind::user) continue;
        if (input->kind == GraphInput::Kind::parameter) {
          take_parameter(*input, before);
        } else if (input->kind == GraphInput::Kind::buffer && input->persistent) {
          take_buffer(*input, before);
        } else {
          used_.push_back({Used::Kind::constant, place_of(*given), constants_.size()});
          constants_.push_back({input, {}});
        }
      }
    }
  }
  find_bindings();
}

bool ProgramLayer::owns_parameter(const std::string& name) const {
  return std::ranges::find(parameters_, name, &Parameter::name) != parameters_.end();
}

bool ProgramLayer::owns_buffer(const std::string& name) const {
  return std::ranges::find(buffers_, name, &Buffer::name) != buffers_.end();
}

void ProgramLayer::take_parameter(const GraphInput& input,
                                  const std::vector<std::unique_ptr<Layer>>& before) {
  const std::string& name = planned_->program.first_name(input.name);
  const auto place = place_of(input.value);
  const auto own = std::ranges::find(parameters_, name, &Parameter::name);
  if (own != parameters_.end()) {
    used_.push_back({Used::Kind::parameter, place, static_cast<std::size_t>(own - parameters_.begin())});
    return;
  }
  for (const auto& layer : before) {
    auto& theirs = layer->parameters();
    const auto found = std::ranges::find(theirs, name, &Parameter::name);
    if (found == theirs.end()) continue;
    const auto known =
        std::ranges::find_if(borrowed_, [&](const auto& use) { return &use.parameter() == &*found; });
    used_.push_back({Used::Kind::borrowed, place, static_cast<std::size_t>(known - borrowed_.begin())});
    if (known == borrowed_.end()) borrowed_.emplace_back(*found);
    return;
  }
  used_.push_back({Used::Kind::parameter, place, parameters_.size()});
  parameters_.push_back(make_parameter(input));
}

void ProgramLayer::take_buffer(const GraphInput& input, const std::vector<std::unique_ptr<Layer>>& before) {
  const auto use = [&](const ProgramLayer& owner, std::size_t index) {
    used_.push_back({Used::Kind::buffer, place_of(input.value), used_buffers_.size()});
    used_buffers_.push_back({.owner = &owner, .index = index, .type = graph()[input.value].tensor->type});
  };
  for (const auto& layer : before) {
    const auto& owner = dynamic_cast<const ProgramLayer&>(*layer);
    const auto found = std::ranges::find(owner.buffers(), input.name, &Buffer::name);
    if (found != owner.buffers().end())
      return use(owner, static_cast<std::size_t>(found - owner.buffers().begin()));
  }
  buffers_.push_back(make_buffer(input, Buffer::Update::constant));
  use(*this, buffers_.size() - 1);
}

/// The buffer is kept in a type that checkpoints have, and may be of another stage of a pipeline.
const at::Tensor& ProgramLayer::value_of(UsedBuffer& use, const Workspace& work) const {
  const at::Tensor& value = use.owner->buffers()[use.index].value;
  const auto type = type_in_run(use.type, planned_->program.type(), work.type);
  if (value.scalar_type() == type && value.device() == work.device) return value;
  const auto version = static_cast<std::int64_t>(value._version());
  const bool is_current = use.here.defined() && use.of.is_same(value) && use.version == version &&
                          use.here.scalar_type() == type && use.here.device() == work.device;
  if (!is_current) {
    use.here = value.to(work.device, type);
    use.of = value;
    use.version = version;
  }
  return use.here;
}

Parameter ProgramLayer::make_parameter(const GraphInput& input) const {
  const auto& stored = planned_->program.find(input);
  const bool last = planned_->is_channels_last(input.value) && stored.sizes.size() == 4;
  const at::Tensor value = at::empty(stored.sizes, at::TensorOptions().dtype(at::kFloat),
                                     last ? kChannelsLast : at::MemoryFormat::Contiguous);
  const Initialisation init{.kind = Initialisation::Kind::given,
                            .values = [planned = planned_, &input] { return planned->program.read(input); }};
  const std::string& name = planned_->program.first_name(input.name);
  const bool trained = stored.requires_grad && planned_->is_trained(name);
  return {.name = name, .value = value.set_requires_grad(trained), .init = init, .frozen = !trained};
}

Buffer ProgramLayer::make_buffer(const GraphInput& input, Buffer::Update update) const {
  const at::Tensor value = planned_->program.read(input);
  return {.name = input.name, .value = value.to(kept_type(value.scalar_type())), .update = update};
}

void ProgramLayer::add_unused_parameter(const GraphInput& input) {
  parameters_.push_back(make_parameter(input));  // no step uses it: it is not trained
}

void ProgramLayer::add_unused_buffer(const GraphInput& input) {
  // A counter counts where its BatchNorm keeps statistics; make_operations() knows.
  buffers_.push_back(make_buffer(input, Buffer::Update::constant));
}

Parameter* ProgramLayer::parameter_of(ValueId value) {
  const auto* input = planned_->input_of(value);
  if (input == nullptr || input->kind != GraphInput::Kind::parameter) return nullptr;
  const auto own =
      std::ranges::find(parameters_, planned_->program.first_name(input->name), &Parameter::name);
  return own == parameters_.end() ? nullptr : &*own;
}

Parameter* ProgramLayer::exclusive_parameter(ValueId value) {
  Parameter* found = parameter_of(value);
  return found != nullptr && planned_->uses_of(found->name) == 1 ? found : nullptr;
}

Buffer* ProgramLayer::buffer_of(ValueId value) {
  const auto* input = planned_->input_of(value);
  if (input == nullptr) return nullptr;
  const auto own = std::ranges::find(buffers_, input->name, &Buffer::name);
  return own == buffers_.end() || planned_->uses_of(input->name) != 1 ? nullptr : &*own;
}

/// BatchNorm's counters, which lie beside its statistics, count where these move.
void ProgramLayer::count_batches() {
  constexpr std::string_view kCounter = ".num_batches_tracked";
  for (Buffer& counter : buffers_) {
    if (!counter.name.ends_with(kCounter) || counter.value.scalar_type() != at::kLong) continue;
    const auto module = counter.name.substr(0, counter.name.size() - kCounter.size());
    const auto mean = std::ranges::find(buffers_, module + ".running_mean", &Buffer::name);
    const bool moves = mean != buffers_.end() && mean->update == Buffer::Update::moving_mean;
    if (moves) counter.update = Buffer::Update::count_steps;
  }
}

std::vector<BorrowedParameter*> ProgramLayer::borrowed() {
  std::vector<BorrowedParameter*> all;
  for (BorrowedParameter& use : borrowed_) all.push_back(&use);
  return all;
}

const at::Tensor& ProgramLayer::constant(Constant& which, const Workspace& work) const {
  const auto stored = graph()[which.input->value].tensor->type;
  const auto type = type_in_run(stored, planned_->program.type(), work.type);
  if (!which.value.defined() || which.value.scalar_type() != type || which.value.device() != work.device)
    which.value = planned_->program.read(*which.input).to(work.device, type);
  return which.value;
}

}  // namespace dtrain::models::exported
