#include "models/exported/program_layer.hpp"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/relu.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "models/exported/operations/operator_call.hpp"
#include "models/exported/operations/own_operations.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/samples/sample_rules.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::int64_t kPadding = 0;  // a text's id behind its last word: data/text

/// As stage_messages of pipelines: dense memory in any order of dims travels as it is, and the gradient lies
/// as the tensor does.
at::Tensor as_sent(const at::Tensor& given) {
  at::Tensor tensor = given.is_non_overlapping_and_dense() ? given : given.contiguous();
  if (!tensor.requires_grad()) return tensor;
  tensor.register_hook([strides = tensor.strides().vec()](const at::Tensor& gradient) {
    if (!gradient.defined() || gradient.strides() == at::IntArrayRef(strides)) return gradient;
    return at::empty_strided(gradient.sizes(), strides, gradient.options()).copy_(gradient);
  });
  return tensor;
}

bool contains(const auto& all, const auto& one) { return std::ranges::find(all, one) != all.end(); }

/// In memory of its own, elements that are repeated once.
at::Tensor copy_of(const at::Tensor& tensor) {
  at::Tensor compact = tensor;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) compact = compact.narrow(dim, 0, 1);
  }
  return compact.clone().expand(tensor.sizes());
}

/// An operation whose result lies in memory as PyTorch has it, dtrain's images lying otherwise.
class ThenInOrder final : public Operation {
 public:
  ThenInOrder(std::unique_ptr<Operation> operation, std::size_t place)
      : operation_(std::move(operation)), place_(place) {}
  void run(Workspace& work) override {
    operation_->run(work);
    work.tensors[place_] = work.tensors[place_].contiguous();
  }
  void add_cost(Cost& cost, const std::function<Shape(ValueId)>& shape_of) const override {
    operation_->add_cost(cost, shape_of);
  }

 private:
  std::unique_ptr<Operation> operation_;
  std::size_t place_;
};

/// An operation and the ReLU of its result, which nothing else uses.
class ThenRelu final : public Operation {
 public:
  ThenRelu(std::unique_ptr<Operation> operation, std::size_t place)
      : operation_(std::move(operation)), place_(place) {}
  void run(Workspace& work) override {
    operation_->run(work);
    at::relu_(work.tensors[place_]);
  }
  void add_cost(Cost& cost, const std::function<Shape(ValueId)>& shape_of) const override {
    operation_->add_cost(cost, shape_of);
  }

 private:
  std::unique_ptr<Operation> operation_;
  std::size_t place_;
};

}  // namespace

bool is_of_the_machine(const c10::Error& error) {
  constexpr std::array<std::string_view, 4> kTexts = {"allocate memory", "CUDA error", "cuDNN error",
                                                      "unable to find an engine"};
  const std::string_view text = error.what_without_backtrace();
  const auto says = [text](std::string_view words) { return text.find(words) != std::string_view::npos; };
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || std::ranges::any_of(kTexts, says);
}

std::size_t ProgramLayer::place_of(ValueId value) {
  return places_.emplace(planned_->plan.same[value], places_.size()).first->second;
}

bool ProgramLayer::lies_in_parameter(const at::Tensor& tensor) const {
  const auto holds = [&](const at::Tensor& parameter) { return parameter.is_alias_of(tensor); };
  return std::ranges::any_of(parameters_, holds, &Parameter::value) ||
         std::ranges::any_of(borrowed_, [&](const BorrowedParameter& use) { return holds(use.value()); });
}

std::vector<Flowing> ProgramLayer::outputs() const {
  if (is_last()) return {{.value = planned_->plan.output}};
  return planned_->plan.runs[run_ + 1].inputs;
}

Scope ProgramLayer::scope() {
  return {.graph = graph(),
          .type = planned_->program.type(),
          .drops = planned_->dropout == PlannedProgram::Dropout::as_exported,
          .place_of = [this](ValueId value) { return place_of(value); },
          .own_parameter = [this](ValueId value) { return exclusive_parameter(value); },
          .parameter = [this](ValueId value) { return parameter_of(value); },
          .carries = [this](ValueId value) { return planned_->plan.carries.contains(value); },
          .buffer = [this](ValueId value) { return buffer_of(value); }};
}

void ProgramLayer::make_operations(const std::vector<std::unique_ptr<Layer>>& all) {
  if (parameters_.empty() && borrowed_.empty()) {
    for (const auto& layer : all) all_.push_back(layer.get());
  }
  const Scope scope = this->scope();
  std::map<ValueId, std::size_t> last_use;
  for (const Step& step : own_run().steps) {
    const Node& node = graph().nodes[step.node];
    Done done{.copies = step.copies};
    done.operation = own_operation(step, scope, planned_->in_training);
    if (done.operation == nullptr) done.operation = operator_call(step, scope);
    done.operation = tapped_operation(*planned_, run_, step, scope, std::move(done.operation));
    if (step.relu_follows && !calls(node, "batch_norm")) {
      const auto place = place_of(node.outputs.at(0).values.at(0));
      done.operation = std::make_unique<ThenRelu>(std::move(done.operation), place);
    }
    if (step.lies_in_order && has_one_result(node))
      done.operation = std::make_unique<ThenInOrder>(std::move(done.operation), place_of(result_of(node)));
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
  for (const Layer* layer : all_) {
    for (const Parameter& parameter : layer->parameters()) {
      if (parameter.value.scalar_type() == at::kDouble) return at::kDouble;
    }
  }
  return at::kFloat;
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
    if (work.context.as_sent && run_ > 0 && tensor.is_floating_point()) tensor = as_sent(tensor);
    const auto place = places_.at(value);
    if (run_ > 0 && tensor.requires_grad() && !planned_->plan.carries.contains(value)) {
      const bool is_written =
          std::ranges::any_of(done_, [place](const Done& done) { return contains(done.written, place); });
      tensor = is_written ? tensor.detach().clone() : tensor.detach();
    }
    if (contains(run.cloned, value)) {
      const bool in_order = tensor.dim() >= 3 && graph()[value].tensor->lies_in_order;
      tensor = tensor.clone(in_order ? at::MemoryFormat::Contiguous : at::MemoryFormat::Preserve);
    }
    work.tensors[place] = tensor;
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
        tensor = value_of(used_buffers_[used.index], work);
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
  // Masks and ids come over the CPU.
  const auto real =
      std::ranges::find_if(inputs, [](const at::Tensor& one) { return one.is_floating_point(); });
  const auto device = !parameters_.empty()   ? parameters_[0].value.device()
                      : !borrowed_.empty()   ? borrowed_[0].value().device()
                      : real != inputs.end() ? real->device()
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
      // Whole numbers, too: a run that is repeated needs its inputs as they were.
      const bool leaf = tensor.is_leaf() && (tensor.requires_grad() || !tensor.is_floating_point());
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
    } catch (const std::runtime_error& error) {  // of LibTorch's numbers
      throw cannot_compute(done, error.what());
    }
    for (const auto place : done.ended) work.tensors[place] = at::Tensor();
  }
  Tensors made;
  for (const auto& flowing : outputs()) {
    if (!flowing.value) {
      made.push_back(at::empty({symbols.at(flowing.symbol), 0}, at::TensorOptions().dtype(at::kLong)));
      continue;
    }
    const at::Tensor& tensor = work.tensors[places_.at(*flowing.value)];
    made.push_back(lies_in_parameter(tensor) ? copy_of(tensor) : tensor);
    if (made.back().requires_grad() && !planned_->plan.carries.contains(*flowing.value))
      made.back() = made.back().detach();
  }
  return made;
}

}  // namespace dtrain::models::exported
