#include "models/exported/operations/operator_call.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "core/printable.hpp"
#include "models/exported/operations/recurrent.hpp"
#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

using Fill = std::function<c10::IValue(const Workspace&)>;

/// A number as PyTorch gives it to an operator that wants a tensor: it does not decide the result's type.
at::Tensor scalar_tensor(const at::Scalar& number) {
  at::Tensor made = c10::scalar_to_tensor(number);
  made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

/// Without `Optional`.
c10::TypePtr plain_type(c10::TypePtr type) {
  while (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type;
}

Fill constant(c10::IValue value) {
  return [value = std::move(value)](const Workspace&) { return value; };
}

/// A size at the time of the call.
class SizeSource {
 public:
  SizeSource(const Size& size, const Graph& graph)
      : expression_(size.value ? *graph[*size.value].number : SizeExpression(size.number)),
        constant_(size.value ? expression_.constant() : std::optional(size.number)) {}
  std::int64_t at(const Workspace& work) const {
    return constant_ ? *constant_ : expression_.evaluate(work.symbols);
  }
  double real_at(const Workspace& work) const { return expression_.evaluate_real(work.symbols); }
  bool is_constant() const { return constant_.has_value(); }

 private:
  SizeExpression expression_;
  std::optional<std::int64_t> constant_;
};

/// Fills one argument of the operator.
class ArgumentFiller {
 public:
  ArgumentFiller(const Node& node, const Scope& scope) : node_(node), scope_(scope) {}

  Fill fill(const Argument& given, const c10::Argument& wanted) const {
    using Kind = Argument::Kind;
    const auto type = plain_type(wanted.type());
    switch (given.kind) {
      case Kind::none:
        return constant({});
      case Kind::tensor:
        return [place = scope_.place_of(*given.values.at(0))](const Workspace& work) {
          return c10::IValue(work.tensors[place]);
        };
      case Kind::tensors:
        return tensors(given, type);
      case Kind::size:
        return size(given, wanted, type);
      case Kind::sizes:
        return sizes(given, type);
      case Kind::number:
        if (type->kind() == c10::TypeKind::TensorType) {
          return [source = SizeSource(given.sizes.at(0), scope_.graph)](const Workspace& work) {
            return c10::IValue(scalar_tensor(source.real_at(work)));
          };
        }
        return [source = SizeSource(given.sizes.at(0), scope_.graph)](const Workspace& work) {
          return c10::IValue(source.real_at(work));
        };
      case Kind::real:
        if (type->kind() == c10::TypeKind::TensorType) return constant(scalar_tensor(given.reals.at(0)));
        return real(given.reals.at(0));
      case Kind::reals:
        return constant(given.reals);
      case Kind::boolean:
        if (type->kind() == c10::TypeKind::TensorType)
          return constant(scalar_tensor(bool{given.booleans.at(0)}));
        return constant(bool{given.booleans.at(0)});
      case Kind::booleans: {
        c10::List<bool> list;
        for (const bool one : given.booleans) list.push_back(one);
        return constant(list);
      }
      case Kind::text:
        return constant(given.text);
      case Kind::type:
        return [wanted_type = static_cast<at::ScalarType>(given.code),
                own = scope_.type](const Workspace& work) {
          return c10::IValue(static_cast<std::int64_t>(type_in_run(wanted_type, own, work.type)));
        };
      case Kind::format:
        return constant(static_cast<std::int64_t>(given.code));
      case Kind::layout:
        return constant(static_cast<std::int64_t>(at::kStrided));
      case Kind::device:
        return [](const Workspace& work) { return c10::IValue(work.device); };
      case Kind::other:
        break;
    }
    throw refused(node_, fmt::format("has an argument of kind {}", printable(given.text, 50)),
                  "use operators that take tensors and numbers");
  }

 private:
  /// `torch.finfo(x.dtype).min` is a number of float32 in the file, which half precision cannot hold: it
  /// becomes that of the tensor beside it, and of autocast where a constant stands alone. LibTorch would make
  /// an infinity of it, and softmax NaN of a row of those, or refuse it.
  Fill real(double number) const {
    constexpr std::array<std::string_view, 7> kRefuse = {"masked_fill", "masked_fill_", "fill_",    "clamp",
                                                         "clamp_",      "clamp_min",    "clamp_max"};
    const bool is_outermost = std::abs(number) == double{std::numeric_limits<float>::max()};
    const auto calls_it = [&](std::string_view name) { return calls(node_, name); };
    const bool fits_what_is_beside = std::isfinite(number) && (std::ranges::any_of(kRefuse, calls_it) ||
                                                               (is_outermost && calls(node_, "where")));
    if (fits_what_is_beside) {
      const auto self = tensor_of(node_, "self");
      const auto beside = self ? self : tensor_of(node_, "other");
      if (!beside) return constant(number);
      return [place = scope_.place_of(*beside), number](const Workspace& work) {
        return c10::IValue(within(number, work.tensors[place].scalar_type()));
      };
    }
    const auto* size = node_.find("size");
    const bool is_one_number =
        calls(node_, "scalar_tensor") || (calls(node_, "full") && (size == nullptr || size->sizes.empty()));
    if (is_outermost && is_one_number) {
      return [number](const Workspace& work) {
        const auto device = work.device.type();
        const bool in_half = at::autocast::is_autocast_enabled(device);
        return c10::IValue(in_half ? within(number, at::autocast::get_autocast_dtype(device)) : number);
      };
    }
    return constant(number);
  }

  static double within(double number, at::ScalarType type) {
    if (type != at::kHalf && type != at::kBFloat16) return number;
    const double most = type == at::kHalf ? double{std::numeric_limits<c10::Half>::max()}
                                          : double{std::numeric_limits<c10::BFloat16>::max()};
    return std::clamp(number, -most, most);
  }

  Fill tensors(const Argument& given, const c10::TypePtr& type) const {
    std::vector<std::optional<std::size_t>> places;
    for (const auto& value : given.values)
      places.push_back(value ? std::optional(scope_.place_of(*value)) : std::nullopt);
    const auto list = type->cast<c10::ListType>();
    if (list != nullptr && list->getElementType()->kind() == c10::TypeKind::OptionalType) {
      return [places](const Workspace& work) {
        c10::List<std::optional<at::Tensor>> made;
        for (const auto& place : places)
          made.push_back(place ? std::optional(work.tensors[*place]) : std::nullopt);
        return c10::IValue(made);
      };
    }
    return [places](const Workspace& work) {
      c10::List<at::Tensor> made;
      for (const auto& place : places) made.push_back(place ? work.tensors[*place] : at::Tensor());
      return c10::IValue(made);
    };
  }

  Fill size(const Argument& given, const c10::Argument& wanted, const c10::TypePtr& type) const {
    const SizeSource source(given.sizes.at(0), scope_.graph);
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
        return [source](const Workspace& work) {
          return c10::IValue(scalar_tensor(at::Scalar(source.at(work))));
        };
      case c10::TypeKind::FloatType:
        return [source](const Workspace& work) { return c10::IValue(static_cast<double>(source.at(work))); };
      case c10::TypeKind::BoolType:
        return [source](const Workspace& work) { return c10::IValue(source.at(work) != 0); };
      case c10::TypeKind::ListType:
        return [source, count = wanted.N().value_or(1)](const Workspace& work) {
          return c10::IValue(std::vector<std::int64_t>(static_cast<std::size_t>(count), source.at(work)));
        };
      default:
        return [source](const Workspace& work) { return c10::IValue(source.at(work)); };
    }
  }

  Fill sizes(const Argument& given, const c10::TypePtr& type) const {
    std::vector<SizeSource> sources;
    for (const Size& one : given.sizes) sources.emplace_back(one, scope_.graph);
    const auto list = type->cast<c10::ListType>();
    if (list != nullptr && list->getElementType()->kind() == c10::TypeKind::FloatType) {
      return [sources](const Workspace& work) {
        std::vector<double> made;
        for (const auto& source : sources) made.push_back(static_cast<double>(source.at(work)));
        return c10::IValue(made);
      };
    }
    const auto now = [sources](const Workspace& work) {
      std::vector<std::int64_t> made;
      made.reserve(sources.size());
      for (const auto& source : sources) made.push_back(source.at(work));
      return c10::IValue(made);
    };
    const bool fixed = std::ranges::all_of(sources, &SizeSource::is_constant);
    if (!fixed) return now;
    std::vector<std::int64_t> made;
    for (const Size& one : given.sizes)
      made.push_back(one.value ? *scope_.graph[*one.value].number->constant() : one.number);
    return constant(made);
  }

  const Node& node_;
  const Scope& scope_;
};

class OperatorCall final : public Operation {
 public:
  OperatorCall(const Step& step, const Scope& scope) : handle_(step.handle) {
    const Node& node = scope.graph.nodes[step.node];
    where_ = node.where();
    leaves_memory_as_it_was_ = is_empty(node);
    const ArgumentFiller filler(node, scope);
    const auto& wanted = handle_.schema().arguments();
    for (const auto& [name, argument] : node.inputs) {
      if (std::ranges::none_of(wanted, [&name = name](const auto& one) { return one.name() == name; })) {
        throw refused(node, fmt::format("is given an argument {} that this LibTorch does not know", name),
                      "export it with PyTorch 2.11");
      }
    }
    for (const auto& argument : wanted) {
      const auto* given = node.find(argument.name());
      if (given != nullptr && argument.name() == "sparse" && given->kind == Argument::Kind::boolean) {
        fills_.push_back(constant(false));  // an embedding's gradients are dense here
      } else if (argument.name() == "train" && is_recurrent(node)) {
        // A module that stays in evaluation mode has gradients, too; on a GPU only calls that train have.
        fills_.push_back(
            [](const Workspace& work) { return c10::IValue(work.context.mode == Mode::training); });
      } else if (argument.name() == "dropout" && is_recurrent(node)) {
        fills_.push_back(constant(0.0));  // what drops is computed layer by layer (recurrent.hpp)
      } else if (given != nullptr) {
        fills_.push_back(filler.fill(*given, argument));
      } else if (argument.default_value()) {
        fills_.push_back(constant(*argument.default_value()));
      } else {
        throw refused(node, fmt::format("lacks its argument {}", argument.name()),
                      "export it with PyTorch 2.11");
      }
    }
    for (const auto& output : node.outputs) {
      Result result{.list = output.kind == Output::Kind::tensors};
      if (output.kind == Output::Kind::tensor || output.kind == Output::Kind::tensors) {
        for (const ValueId value : output.values) result.places.push_back(scope.place_of(value));
      }
      results_.push_back(std::move(result));
    }
  }

  void run(Workspace& work) override {
    torch::jit::Stack stack;
    stack.reserve(fills_.size());
    for (const auto& fill : fills_) stack.push_back(fill(work));
    handle_.callBoxed(stack);
    // Else what a program forgets to fill would differ from run to run, or be other data of this process.
    if (leaves_memory_as_it_was_ && !stack.empty() && stack[0].isTensor()) stack[0].toTensor().zero_();
    for (std::size_t i = 0; i < results_.size() && i < stack.size(); ++i) take(results_[i], stack[i], work);
  }

 private:
  struct Result {
    bool list = false;
    std::vector<std::size_t> places;
  };

  void take(const Result& result, const c10::IValue& value, Workspace& work) const {
    if (result.places.empty()) return;
    if (!result.list && value.isTensor()) {
      work.tensors[result.places.at(0)] = in_type_of_run(value.toTensor(), work);
      return;
    }
    require(result.list && value.isTensorList() && value.toTensorList().size() == result.places.size(),
            where_ + " gave other outputs than the program says", {.subject = "--model"});
    const auto list = value.toTensorVector();
    for (std::size_t i = 0; i < list.size(); ++i)
      work.tensors[result.places[i]] = in_type_of_run(list[i], work);
  }

  /// Of whole numbers LibTorch makes float, as by `ids * 0.1`, whatever the run computes in.
  static at::Tensor in_type_of_run(const at::Tensor& made, const Workspace& work) {
    const bool rounded = work.type == at::kDouble && made.defined() && made.scalar_type() == at::kFloat;
    return rounded ? made.to(at::kDouble) : made;
  }

  static bool is_empty(const Node& node) {
    constexpr std::array<std::string_view, 6> kNames = {"empty",     "empty_like",        "empty_strided",
                                                        "new_empty", "new_empty_strided", "empty_permuted"};
    return std::ranges::any_of(kNames, [&](std::string_view name) { return calls(node, name); });
  }

  c10::OperatorHandle handle_;
  std::string where_;
  bool leaves_memory_as_it_was_ = false;
  std::vector<Fill> fills_;
  std::vector<Result> results_;
};

}  // namespace

std::unique_ptr<Operation> operator_call(const Step& step, const Scope& scope) {
  return std::make_unique<OperatorCall>(step, scope);
}

}  // namespace dtrain::models::exported
