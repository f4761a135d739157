#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/compute/sample_tap.hpp"
#include "models/exported/operations/given.hpp"
#include "models/exported/operations/own_operations.hpp"
#include "models/exported/operations/recurrent.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/samples/parameter_uses.hpp"
#include "models/exported/samples/sample_rules.hpp"

namespace dtrain::models::exported {
namespace {

using Compute = std::function<at::Tensor(const Workspace&)>;

class TappedOperation final : public Operation {
 public:
  TappedOperation(std::unique_ptr<Operation> plain, std::unique_ptr<Operation> tapped)
      : plain_(std::move(plain)), tapped_(std::move(tapped)) {}
  void run(Workspace& work) override { (SampleTap::open() == nullptr ? plain_ : tapped_)->run(work); }
  void add_cost(Cost& cost, const std::function<Shape(ValueId)>& shape_of) const override {
    plain_->add_cost(cost, shape_of);
  }

 private:
  std::unique_ptr<Operation> plain_, tapped_;
};

class Computation final : public Operation {
 public:
  Computation(std::size_t to, Compute compute) : to_(to), compute_(std::move(compute)) {}
  void run(Workspace& work) override { work.tensors[to_] = compute_(work); }

 private:
  std::size_t to_;
  Compute compute_;
};

/// The order in which samples come in a tensor.
class SampleOrder {
 public:
  SampleOrder(const PlannedProgram& planned, std::size_t run, std::optional<ValueId> value)
      : planned_(&planned), run_(run), value_(value) {}

  /// function(values), whose last `own` dims are the function's and all others count rows. Where the rows of
  /// samples do not come one behind the other, the tap learns whose each is.
  template <class Function>
  at::Tensor apply(const Workspace& work, const at::Tensor& values, std::size_t own,
                   const Function& function) const {
    if (!place_) place_ = value_ ? place_of_samples(*planned_, run_, *value_) : std::nullopt;
    if (!place_ || place_->leads()) return function(values);
    const auto sizes = values.sizes();
    const auto counting = sizes.slice(0, sizes.size() - own);
    std::int64_t stride = place_->after[0];
    for (std::size_t dim = place_->dim + 1; dim < counting.size(); ++dim) stride *= counting[dim];
    std::vector<std::int64_t> flat = {c10::multiply_integers(counting)};
    const auto n = work.symbols.at(*symbol_of_samples(*planned_));
    const SampleTap::PackedRows packed(at::arange(flat[0], at::kLong).floor_divide(stride).remainder(n));
    for (const auto size : sizes.slice(counting.size())) flat.push_back(size);
    const auto output = function(values.reshape(flat));
    auto shape = counting.vec();
    for (const auto size : output.sizes().slice(1)) shape.push_back(size);
    return output.view(shape);
  }

 private:
  const PlannedProgram* planned_;
  std::size_t run_;
  std::optional<ValueId> value_;
  mutable std::optional<SamplePlace> place_;  // found when it is needed: only private runs do
};

/// A tensor of the workspace; none: undefined.
class Held {
 public:
  explicit Held(std::optional<std::size_t> place) : place_(place) {}
  at::Tensor in(const Workspace& work) const { return place_ ? work.tensors[*place_] : at::Tensor(); }

 private:
  std::optional<std::size_t> place_;
};

/// One number for each dim, or what PyTorch takes where none is given.
std::vector<std::int64_t> numbers_of(const Node& node, const char* name, std::size_t dims,
                                     std::int64_t otherwise) {
  const auto* argument = node.find(name);
  std::vector<std::int64_t> numbers;
  if (argument != nullptr) {
    for (const Size& size : argument->sizes) numbers.push_back(size.number);
  }
  if (numbers.empty()) numbers.push_back(otherwise);
  if (numbers.size() == 1) numbers.resize(dims, numbers[0]);
  return numbers;
}

Compute tapped_convolution_of(const Given& given, std::size_t dims) {
  const Node& node = given.node;
  const ParameterUse::Convolution how{.stride = numbers_of(node, "stride", dims, 1),
                                      .padding = numbers_of(node, "padding", dims, 0),
                                      .dilation = numbers_of(node, "dilation", dims, 1),
                                      .output_padding = numbers_of(node, "output_padding", dims, 0),
                                      .groups = number_of(node, "groups").value_or(1),
                                      .transposed = node.target.find("transpose") != std::string::npos};
  return [=, input = Held(given.place("input")), weight = Held(given.place("weight")),
          bias = Held(given.place("bias"))](const Workspace& work) {
    return tapped_convolution(input.in(work), weight.in(work), bias.in(work), how);
  };
}

/// Rows by a parameter: `input` W, or of a parameter that was transposed first, `input` W^T.
Compute product_of(const Given& given, const char* first, const char* second, const Scope& scope,
                   const UsedParameter& weight) {
  return [turned = weight.turned, input = Held(given.place(first)), made = Held(given.place(second)),
          parameter = Held(scope.place_of(weight.parameter)),
          bias = Held(given.place(calls(given.node, "addmm") ? "self" : "bias"))](const Workspace& work) {
    if (turned) return tapped_linear(input.in(work), parameter.in(work), bias.in(work));
    const auto output = tapped_product(input.in(work), made.in(work));
    const auto shift = bias.in(work);
    return shift.defined() ? tapped_sum(output, shift) : output;
  };
}

Compute norm_of(const Given& given, SampleOrder order) {
  const Node& node = given.node;
  const Held input(given.place("input"));
  const Held weight(given.place("weight"));
  const Held bias(given.place("bias"));
  const double eps = given.real("eps", 1e-5);
  if (calls(node, "group_norm")) {
    return [=, groups = number_of(node, "num_groups").value_or(1)](const Workspace& work) {
      return tapped_group_norm(input.in(work), groups, weight.in(work), bias.in(work), eps);
    };
  }
  std::vector<std::int64_t> shape;
  for (const Size& size : node.find("normalized_shape")->sizes) shape.push_back(size.number);
  return [=](const Workspace& work) {
    return order.apply(work, input.in(work), shape.size(), [&](const at::Tensor& rows) {
      return tapped_layer_norm(rows, shape, weight.in(work), bias.in(work), eps);
    });
  };
}

/// Of add and mul, whose one operand is the parameter.
Compute beside_parameter(const Given& given, const UsedParameter& used) {
  const bool adds = calls(given.node, "add");
  return [adds, parameter = Held(given.place(used.argument.c_str())),
          input = Held(given.place(used.argument == "self" ? "other" : "self"))](const Workspace& work) {
    return adds ? tapped_sum(input.in(work), parameter.in(work))
                : tapped_scaled(input.in(work), parameter.in(work));
  };
}

/// A parameter that each sample has a copy of.
Compute copies_of(const Given& given, const Scope& scope) {
  return [parameter = Held(given.place("self")),
          sizes = scope.graph[result_of(given.node)].tensor->sizes](const Workspace& work) {
    const auto values = parameter.in(work);
    std::vector<std::int64_t> shape;
    for (const auto& size : sizes) shape.push_back(size.evaluate(work.symbols));
    return tapped_sum(at::zeros(shape, values.options().requires_grad(false)), values);
  };
}

/// An embedding that is alike for all samples: each gets a copy, so that its own gradient comes back.
Compute positions_of(const Given& given, const std::string& samples) {
  return [samples, ids = Held(given.place("indices")), table = Held(given.place("weight")),
          padding = number_of(given.node, "padding_idx").value_or(-1)](const Workspace& work) {
    const auto places = ids.in(work).reshape({1, -1});
    return tapped_embedding(table.in(work), places.expand({work.symbols.at(samples), places.size(1)}),
                            padding);
  };
}

/// Null: no rule.
Compute compute_of(const PlannedProgram& planned, std::size_t run, const Given& given, const Scope& scope,
                   const std::vector<UsedParameter>& used) {
  const Node& node = given.node;
  const auto order_of = [&](const char* name) { return SampleOrder(planned, run, tensor_of(node, name)); };
  const auto weight_in = [&](const char* argument) -> const UsedParameter* {
    for (const auto& one : used) {
      if (one.argument == argument) return &one;
    }
    return nullptr;
  };
  if (calls(node, "linear")) {
    return [order = order_of("input"), input = Held(given.place("input")),
            weight = Held(given.place("weight")), bias = Held(given.place("bias"))](const Workspace& work) {
      return order.apply(work, input.in(work), 1, [&](const at::Tensor& rows) {
        return tapped_linear(rows, weight.in(work), bias.in(work));
      });
    };
  }
  for (const auto& [name, first, second] :
       {std::tuple("addmm", "mat1", "mat2"), std::tuple("mm", "self", "mat2"),
        std::tuple("matmul", "self", "other")}) {
    if (!calls(node, name)) continue;
    const auto* weight = weight_in(second);
    return weight != nullptr ? product_of(given, first, second, scope, *weight) : nullptr;
  }
  if (calls(node, "embedding")) {
    const auto indices = tensor_of(node, "indices");
    const auto samples = symbol_of_samples(planned);
    if (!indices || !samples) return nullptr;
    const auto& sizes = scope.graph[*indices].tensor->sizes;
    const bool of_samples = std::ranges::any_of(
        sizes, [&](const SizeExpression& size) { return size.symbols().contains(*samples); });
    if (!of_samples) return positions_of(given, *samples);
    return
        [order = order_of("indices"), ids = Held(given.place("indices")), table = Held(given.place("weight")),
         padding = number_of(node, "padding_idx").value_or(-1)](const Workspace& work) {
          return order.apply(work, ids.in(work), 0, [&](const at::Tensor& rows) {
            return tapped_embedding(table.in(work), rows, padding);
          });
        };
  }
  if (calls(node, "layer_norm") || calls(node, "group_norm")) return norm_of(given, order_of("input"));
  for (std::size_t dims = 1; dims <= 3; ++dims) {
    if (calls(node, "conv" + std::to_string(dims) + "d") ||
        calls(node, "conv_transpose" + std::to_string(dims) + "d"))
      return tapped_convolution_of(given, dims);
  }
  const bool of_two = tensor_of(node, "self") && tensor_of(node, "other");
  if ((calls(node, "add") || calls(node, "mul")) && of_two && used.size() == 1)
    return beside_parameter(given, used[0]);
  if (calls(node, "expand")) return copies_of(given, scope);
  return nullptr;
}

}  // namespace

std::unique_ptr<Operation> tapped_operation(const PlannedProgram& planned, std::size_t run, const Step& step,
                                            const Scope& scope, std::unique_ptr<Operation> operation) {
  const Given given(step, scope);
  const auto used = parameters_of(planned, given.node);
  if (used.empty() || step.texts) return operation;
  std::unique_ptr<Operation> tapped;
  if (is_recurrent(given.node)) {
    const bool drops = drops_in_training(given.node, planned.in_training);
    if (has_known_parameters(given.node)) tapped = recurrence_by_layers(given.node, scope, drops);
  } else if (has_one_result(given.node)) {
    if (auto compute = compute_of(planned, run, given, scope, used); compute != nullptr)
      tapped = std::make_unique<Computation>(given.result(), std::move(compute));
  }
  if (tapped == nullptr) return operation;
  return std::make_unique<TappedOperation>(std::move(operation), std::move(tapped));
}

}  // namespace dtrain::models::exported
