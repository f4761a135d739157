// A program's layer: the shapes of what flows through it, and what it costs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "models/exported/costs.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/program_layer.hpp"
#include "models/shape.hpp"

namespace dtrain::models::exported {
namespace {

std::string size_text(const SizeExpression& size) {
  if (const auto number = size.constant()) return std::to_string(*number);
  return size.symbol().value_or("...");
}

}  // namespace

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
    shape.at(cut->second.dim) = cut->second.of(shape.at(cut->second.dim));
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

double ProgramLayer::largest_inside(const std::vector<Shape>& inputs,
                                    const std::function<Shape(ValueId)>& shape_of) const {
  const auto flows = [&](ValueId value) {
    return planned_->plan.carries.contains(value) && planned_->input_of(value) == nullptr;
  };
  double largest = 0;
  for (const Step& step : own_run().steps) {
    double elements = 0;
    for (const ValueId value : tensors_read(step, graph()))
      if (flows(value)) elements += element_count(shape_of(value));
    for (const auto& output : graph().nodes[step.node].outputs) {
      if (output.kind == Output::Kind::number) continue;
      for (const ValueId value : output.values)
        if (flows(value)) elements += element_count(shape_of(planned_->plan.same[value]));
    }
    largest = std::max(largest, elements);
  }
  double around = 0;
  for (const auto& one : inputs) around += element_count(one);
  for (const auto& one : output_shapes(inputs)) around += element_count(one);
  return std::max(0.0, largest - around);
}

Cost ProgramLayer::cost(const std::vector<Shape>& inputs) const {
  const auto symbols = symbols_of(inputs);
  const auto shape = [&](ValueId value) { return shape_of(value, symbols); };
  Cost cost;
  double float_bytes = sizeof(float);
  for (const Parameter& parameter : parameters_) {
    float_bytes = static_cast<double>(parameter.value.element_size());
    const double bytes = static_cast<double>(parameter.value.numel()) * float_bytes;
    cost.parameter_bytes += bytes;
    if (!parameter.frozen) cost.gradient_bytes += bytes;  // LibTorch's, of most operators
  }
  std::set<ValueId> came_in;  // and what shares memory with it
  for (const auto& flowing : own_run().inputs)
    if (flowing.value) came_in.insert(*flowing.value);
  for (const Step& step : own_run().steps) {
    const Node& node = graph().nodes[step.node];
    cost.flops += step.texts ? element_count(shape(*step.texts)) *
                                   static_cast<double>(shape(node.outputs[0].values.at(0)).back())
                             : flops_of(node, shape);
    cost.activation_bytes += elements_kept_inside(node, shape) * float_bytes;
    const auto shared = shared_memory(node, step.handle.schema());
    for (const Sharing& pair : shared) {
      if (pair.how == Sharing::How::same) {
        came_in.erase(pair.input);  // it may have become a copy
      } else if (came_in.contains(pair.input)) {
        came_in.insert(pair.output);
      }
    }
    for (const auto& output : node.outputs) {
      if (output.kind == Output::Kind::number) continue;
      for (const ValueId value : output.values) {
        if (std::ranges::find(shared, value, &Sharing::output) != shared.end()) continue;
        const auto type = graph()[value].tensor->type;
        const double bytes =
            at::isFloatingType(type) ? float_bytes : static_cast<double>(at::elementSize(type));
        if (planned_->kept[value] && !step.overwrites_input)
          cost.activation_bytes += element_count(shape(planned_->plan.same[value])) * bytes;
      }
    }
  }
  for (const auto& flowing : outputs())
    if (flowing.value && came_in.contains(*flowing.value))
      cost.passed_on += element_count(shape(*flowing.value));
  cost.gradient_bytes += largest_inside(inputs, shape) * float_bytes;
  for (const Done& done : done_) done.operation->add_cost(cost, shape);
  for (const ValueId value : entered_) cost.entered_bytes += element_count(shape(value)) * float_bytes;
  for (const ValueId value : left_) cost.left_bytes += element_count(shape(value)) * float_bytes;
  return cost;
}

}  // namespace dtrain::models::exported
