#include "models/exported/program_layer.hpp"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/relu.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "models/exported/costs.hpp"
#include "models/exported/operator_call.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/own_operations.hpp"
#include "models/shape.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::int64_t kPadding = 0;  // a text's id behind its last word: data/text

/// Types that checkpoints have; of bool and small whole numbers they keep int32.
bool is_kept_as_it_is(at::ScalarType type) {
  return at::isFloatingType(type) || type == at::kLong || type == at::kInt;
}

std::string size_text(const SizeExpression& size) {
  if (const auto number = size.constant()) return std::to_string(*number);
  return size.symbol().value_or("...");
}

/// Memory that is not there, or a device that fails: no fault of the program.
bool is_of_the_machine(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         text.find("allocate memory") != std::string_view::npos ||
         text.find("CUDA error") != std::string_view::npos;
}

/// An operation and the ReLU of its result, which nothing else uses.
class ThenRelu final : public Operation {
 public:
  ThenRelu(std::unique_ptr<Operation> operation, std::size_t place)
      : operation_(std::move(operation)), place_(place) {}
  void run(Workspace& work) override {
    operation_->run(work);
    at::relu_(work.tensors[place_]);
  }

 private:
  std::unique_ptr<Operation> operation_;
  std::size_t place_;
};

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
        } else {
          const bool elsewhere = std::ranges::any_of(before, [&](const auto& layer) {
            return dynamic_cast<const ProgramLayer&>(*layer).owns_buffer(input->name);
          });
          const bool is_state = input->kind == GraphInput::Kind::buffer && input->persistent && !elsewhere;
          if (is_state) buffers_.push_back(make_buffer(*input, Buffer::Update::constant));
          if (is_state && is_kept_as_it_is(graph()[*given].tensor->type)) {
            used_.push_back({Used::Kind::buffer, place_of(*given), buffers_.size() - 1});
          } else {
            used_.push_back({Used::Kind::constant, place_of(*given), constants_.size()});
            constants_.push_back({input, {}});
          }
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

Parameter ProgramLayer::make_parameter(const GraphInput& input) const {
  const auto& stored = planned_->program.find(input);
  const bool last = planned_->is_channels_last(input.value) && stored.sizes.size() == 4;
  const at::Tensor value = at::empty(stored.sizes, at::TensorOptions().dtype(at::kFloat),
                                     last ? kChannelsLast : at::MemoryFormat::Contiguous);
  const Initialisation init{.kind = Initialisation::Kind::given,
                            .values = [planned = planned_, &input] { return planned->program.read(input); }};
  return {.name = planned_->program.first_name(input.name),
          .value = value.set_requires_grad(stored.requires_grad),
          .init = init,
          .frozen = !stored.requires_grad};
}

Buffer ProgramLayer::make_buffer(const GraphInput& input, Buffer::Update update) const {
  const at::Tensor value = planned_->program.read(input);
  const auto type = value.is_floating_point()               ? at::kFloat
                    : is_kept_as_it_is(value.scalar_type()) ? value.scalar_type()
                                                            : at::kInt;
  return {.name = input.name, .value = value.to(type), .update = update};
}

void ProgramLayer::add_unused_parameter(const GraphInput& input) {
  Parameter made = make_parameter(input);
  made.frozen = true;
  made.value.set_requires_grad(false);
  parameters_.push_back(std::move(made));
}

void ProgramLayer::add_unused_buffer(const GraphInput& input) {
  // A counter counts where its BatchNorm keeps statistics; make_operations() knows.
  buffers_.push_back(make_buffer(input, Buffer::Update::constant));
}

std::size_t ProgramLayer::place_of(ValueId value) {
  return places_.emplace(planned_->plan.same[value], places_.size()).first->second;
}

std::vector<Flowing> ProgramLayer::outputs() const {
  if (is_last()) return {{.value = planned_->plan.output}};
  return planned_->plan.runs[run_ + 1].inputs;
}

void ProgramLayer::find_bindings() {
  std::set<std::string> bound;
  const auto& inputs = own_run().inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].value) {
      if (bound.insert(inputs[i].symbol).second) bindings_.push_back({inputs[i].symbol, i, 0});
      continue;
    }
    const auto& sizes = graph()[*inputs[i].value].tensor->sizes;
    for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
      const auto symbol = sizes[dim].symbol();
      if (symbol && bound.insert(*symbol).second) bindings_.push_back({*symbol, i, dim});
    }
  }
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

Scope ProgramLayer::scope() {
  return {.graph = graph(),
          .type = planned_->program.type(),
          .drops = planned_->dropout == PlannedProgram::Dropout::as_exported,
          .place_of = [this](ValueId value) { return place_of(value); },
          .own_parameter = [this](ValueId value) { return exclusive_parameter(value); },
          .parameter = [this](ValueId value) { return parameter_of(value); },
          .buffer = [this](ValueId value) { return buffer_of(value); }};
}

void ProgramLayer::make_operations() {
  const Scope scope = this->scope();
  std::map<ValueId, std::size_t> last_use;
  for (const Step& step : own_run().steps) {
    const Node& node = graph().nodes[step.node];
    Done done{.copies = step.copies};
    done.operation = own_operation(step, scope, planned_->in_training);
    if (done.operation == nullptr) done.operation = operator_call(step, scope);
    if (step.relu_follows && !calls(node, "batch_norm")) {
      const auto place = place_of(node.outputs.at(0).values.at(0));
      done.operation = std::make_unique<ThenRelu>(std::move(done.operation), place);
    }
    if (step.copies != Step::Copies::never) {
      for (const ValueId value : written(node, step.handle.schema())) done.written.push_back(place_of(value));
    }
    for (const ValueId value : tensors_read(step, graph()))
      last_use[planned_->plan.same[value]] = done_.size();
    for (const auto& output : node.outputs) {
      if (output.kind == Output::Kind::number) continue;
      for (const ValueId value : output.values) last_use[planned_->plan.same[value]] = done_.size();
    }
    done_.push_back(std::move(done));
  }
  for (const auto& flowing : outputs()) {
    if (flowing.value) last_use.erase(*flowing.value);
  }
  for (const auto& [value, index] : last_use) done_[index].ended.push_back(place_of(value));
  count_batches();
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

std::int64_t ProgramLayer::missing_words(std::size_t index, at::IntArrayRef given) const {
  if (run_ != 0 || !own_run().inputs[index].value || given.size() != 2) return 0;
  const TensorFacts& facts = *graph()[*own_run().inputs[index].value].tensor;
  if (at::isFloatingType(facts.type) || facts.sizes.size() != 2) return 0;
  return std::max<std::int64_t>(0, facts.sizes[1].constant().value_or(0) - given[1]);
}

Symbols ProgramLayer::symbols_of(std::vector<Shape> inputs) const {
  require(inputs.size() >= own_run().inputs.size(), "is given other tensors than it takes",
          {.subject = fmt::format("layer {}", name())});
  for (std::size_t i = 0; i < own_run().inputs.size(); ++i) {
    if (const auto missing = missing_words(i, inputs[i]); missing > 0) inputs[i][1] += missing;
  }
  Symbols symbols;
  for (const Binding& binding : bindings_) {
    const Shape& shape = inputs[binding.input];
    if (binding.dim < shape.size()) symbols.emplace(binding.symbol, shape[binding.dim]);
  }
  for (std::size_t i = 0; i < own_run().inputs.size(); ++i) check_input(i, inputs[i], symbols);
  return symbols;
}

void ProgramLayer::check_input(std::size_t index, const Shape& given, const Symbols& symbols) const {
  if (!own_run().inputs[index].value) return;
  const auto& sizes = graph()[*own_run().inputs[index].value].tensor->sizes;
  if (shape_of(*own_run().inputs[index].value, symbols) == given) return;
  std::vector<std::string> wanted;
  for (const auto& size : sizes) wanted.push_back(size_text(size));
  throw input_error(name(), fmt::format("[{}]", fmt::join(wanted, ", ")), given);
}

Shape ProgramLayer::shape_of(ValueId value, const Symbols& symbols) const {
  Shape shape;
  for (const auto& size : graph()[value].tensor->sizes) shape.push_back(size.evaluate(symbols));
  if (const auto cut = sliced_.find(value); cut != sliced_.end())
    shape.at(cut->second.dim) = cut->second.extent;
  return shape;
}

std::vector<Shape> ProgramLayer::output_shapes(const std::vector<Shape>& inputs) const {
  const auto symbols = symbols_of(inputs);
  std::vector<Shape> shapes;
  for (const auto& flowing : outputs())
    shapes.push_back(flowing.value ? shape_of(*flowing.value, symbols)
                                   : Shape{symbols.at(flowing.symbol), 0});
  return shapes;
}

Cost ProgramLayer::cost(const std::vector<Shape>& inputs) const {
  const auto symbols = symbols_of(inputs);
  const auto shape = [&](ValueId value) { return shape_of(value, symbols); };
  Cost cost;
  double float_bytes = sizeof(float);
  for (const Parameter& parameter : parameters_) {
    float_bytes = static_cast<double>(parameter.value.element_size());
    cost.parameter_bytes += static_cast<double>(parameter.value.numel()) * float_bytes;
  }
  for (const Step& step : own_run().steps) {
    const Node& node = graph().nodes[step.node];
    cost.flops += step.means_words ? element_count(shape(node.find("indices")->values.at(0).value())) *
                                         static_cast<double>(shape(node.outputs[0].values.at(0)).back())
                                   : flops_of(node, shape);
    const auto shared = shared_memory(node, step.handle.schema());
    for (const auto& output : node.outputs) {
      if (output.kind == Output::Kind::number) continue;
      for (const ValueId value : output.values) {
        if (std::ranges::find(shared, value, &Sharing::output) != shared.end()) continue;
        const auto type = graph()[value].tensor->type;
        const double bytes =
            at::isFloatingType(type) ? float_bytes : static_cast<double>(at::elementSize(type));
        if (!step.overwrites_input)
          cost.activation_bytes += element_count(shape(planned_->plan.same[value])) * bytes;
      }
    }
  }
  for (const ValueId value : entered_) cost.entered_bytes += element_count(shape(value)) * float_bytes;
  for (const ValueId value : left_) cost.left_bytes += element_count(shape(value)) * float_bytes;
  return cost;
}

std::vector<BorrowedParameter*> ProgramLayer::borrowed() {
  std::vector<BorrowedParameter*> all;
  for (BorrowedParameter& use : borrowed_) all.push_back(&use);
  return all;
}

at::ScalarType ProgramLayer::type_of(const Tensors& inputs) const {
  for (const Parameter& parameter : parameters_) {
    if (!parameter.value.is_meta()) return parameter.value.scalar_type();
  }
  for (const BorrowedParameter& use : borrowed_) {
    if (!use.value().is_meta()) return use.value().scalar_type();
  }
  for (const auto& input : inputs) {
    if (input.scalar_type() == at::kDouble) return at::kDouble;
  }
  return at::kFloat;
}

const at::Tensor& ProgramLayer::constant(Constant& which, const Workspace& work) const {
  const auto stored = graph()[which.input->value].tensor->type;
  const auto type = type_in_run(stored, planned_->program.type(), work.type);
  if (!which.value.defined() || which.value.scalar_type() != type || which.value.device() != work.device)
    which.value = planned_->program.read(*which.input).to(work.device, type);
  return which.value;
}

void ProgramLayer::enter(Workspace& work, const Tensors& inputs) {
  const auto& run = own_run();
  for (std::size_t i = 0; i < run.inputs.size(); ++i) {
    if (!run.inputs[i].value) continue;
    const ValueId value = *run.inputs[i].value;
    at::Tensor tensor = inputs[i];
    const auto type = type_in_run(graph()[value].tensor->type, planned_->program.type(), work.type);
    if (run_ == 0 || !tensor.is_floating_point())
      tensor = tensor.to(type);  // ids, and masks that have travelled
    if (const auto missing = missing_words(i, tensor.sizes()); missing > 0)
      tensor = at::constant_pad_nd(tensor, {0, missing}, kPadding);
    if (tensor.device() != work.device) tensor = tensor.to(work.device);
    if (std::ranges::find(run.cloned, value) != run.cloned.end()) tensor = tensor.clone();
    work.tensors[places_.at(value)] = tensor;
  }
  for (const Used& used : used_) {
    at::Tensor& tensor = work.tensors[used.place];
    switch (used.kind) {
      case Used::Kind::parameter:
        tensor = parameters_[used.index].value;
        break;
      case Used::Kind::borrowed:
        tensor = borrowed_[used.index].value();
        break;
      case Used::Kind::buffer:
        tensor = buffers_[used.index].value;
        break;
      case Used::Kind::constant:
        tensor = constant(constants_[used.index], work);
        break;
    }
  }
}

/// What the program's author has to see: the operation, and why LibTorch refuses it.
Error ProgramLayer::cannot_compute(const Done& done, const std::string& why) const {
  const auto index = static_cast<std::size_t>(&done - done_.data());
  const Node& node = graph().nodes[own_run().steps[index].node];
  return usage_error(fmt::format("{} cannot be computed: {}", node.where(), printable(why, 300)),
                     "--model " + planned_->program.file(), "run the module in Python with the same inputs");
}

Tensors ProgramLayer::forward(const Tensors& inputs, const Context& context) {
  std::vector<Shape> shapes;
  for (const auto& input : inputs) shapes.push_back(input.sizes().vec());
  const auto symbols = symbols_of(shapes);
  const auto device = !parameters_.empty() ? parameters_[0].value.device()
                      : !borrowed_.empty() ? borrowed_[0].value().device()
                                           : inputs.at(0).device();
  Workspace work{.tensors = std::vector<at::Tensor>(places_.size()),
                 .symbols = symbols,
                 .context = context,
                 .type = type_of(inputs),
                 .device = device};
  enter(work, inputs);
  for (Done& done : done_) {
    for (const auto place : done.written) {
      at::Tensor& tensor = work.tensors[place];
      const bool leaf = tensor.requires_grad() && tensor.is_leaf();
      if (leaf || done.copies == Step::Copies::always) tensor = tensor.clone();
    }
    try {
      done.operation->run(work);
    } catch (const c10::Error& error) {
      if (is_of_the_machine(error)) throw;
      throw cannot_compute(done, error.what_without_backtrace());
    } catch (const Error& error) {
      if (!error.subject().empty()) throw;
      throw cannot_compute(done, error.problem());
    }
    for (const auto place : done.ended) work.tensors[place] = at::Tensor();
  }
  Tensors made;
  for (const auto& flowing : outputs()) {
    made.push_back(flowing.value
                       ? work.tensors[places_.at(*flowing.value)]
                       : at::empty({symbols.at(flowing.symbol), 0}, at::TensorOptions().dtype(at::kLong)));
  }
  return made;
}

}  // namespace dtrain::models::exported
