#include "models/exported/slicing/sliced_linear.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <functional>
#include <utility>
#include <vector>

#include "models/exported/operations/attention.hpp"
#include "models/exported/operations/given.hpp"
#include "models/exported/operations/masks.hpp"
#include "models/exported/operations/own_operations.hpp"
#include "models/exported/slicing/node_search.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/linear.hpp"
#include "models/slicing/slices.hpp"

namespace dtrain::models::exported {
namespace {

/// What both have: the parameters, of which the layer keeps its part.
struct SlicedLinear {
  SlicedLinear(const Given& given, const Scope& scope, TensorGroup& its_group)
      : from(scope.place_of(*linear_input(given.node))),
        to(given.result()),
        weight(*scope.own_parameter(*linear_weight(given.node))),
        bias(linear_bias(given.node) ? scope.own_parameter(*linear_bias(given.node)) : nullptr),
        turned(is_turned(given.node)),
        group(its_group) {}

  at::Tensor product(const at::Tensor& input) const {
    return turned ? at::mm(input, weight.value) : at::linear(input, weight.value);
  }

  std::size_t from, to;
  Parameter& weight;
  Parameter* bias;
  bool turned;  // the weight is [inputs, outputs]
  TensorGroup& group;
};

class LinearIntoSlices final : public Operation {
 public:
  LinearIntoSlices(const SlicedLinear& linear, const FeaturePart& outputs, Entering entering)
      : linear_(linear), entering_(entering) {
    const auto inputs = linear_.weight.value.size(linear_.turned ? 0 : 1);
    if (linear_.turned) {
      hold(linear_.weight, outputs, {inputs}, {});
    } else {
      hold(linear_.weight, outputs, {}, {inputs});
    }
    if (linear_.bias != nullptr) hold(*linear_.bias, outputs, {}, {});
  }
  void run(Workspace& work) override {
    const at::Tensor input = enter(work);
    if (linear_.bias == nullptr) {
      work.tensors[linear_.to] = linear_.product(input);
    } else if (linear_.turned) {
      work.tensors[linear_.to] = at::addmm(linear_.bias->value, input, linear_.weight.value);
    } else {
      work.tensors[linear_.to] = linear_product(input, linear_.weight, *linear_.bias);
    }
  }

 private:
  at::Tensor enter(Workspace& work) {
    at::Tensor& whole = work.tensors[linear_.from];
    if (entering_ == Entering::done) return whole;
    const at::Tensor entered = linear_.group.enter(whole);
    if (entering_ == Entering::for_all) whole = entered;
    return entered;
  }
  /// `before` and `behind`: dims of the parameter around those of the outputs.
  static void hold(Parameter& parameter, const FeaturePart& outputs, const Shape& before,
                   const Shape& behind) {
    parameter.slicing = outputs.view.empty() ? Slicing::column : Slicing::heads;
    Shape view = outputs.view;
    if (!view.empty()) {
      view.insert(view.begin(), before.begin(), before.end());
      view.insert(view.end(), behind.begin(), behind.end());
    }
    hold_slice(parameter, outputs.dim + static_cast<std::int64_t>(before.size()), outputs.part, view);
  }
  SlicedLinear linear_;
  Entering entering_;
};

class LinearOutOfSlices final : public Operation {
 public:
  LinearOutOfSlices(const SlicedLinear& linear, const FeaturePart& inputs) : linear_(linear) {
    linear_.weight.slicing = Slicing::row;
    Shape view = inputs.view;
    const auto outputs = linear_.weight.value.size(linear_.turned ? 1 : 0);
    if (!view.empty()) view.insert(linear_.turned ? view.end() : view.begin(), outputs);
    hold_slice(linear_.weight, inputs.dim + (linear_.turned ? 0 : 1), inputs.part, view);
  }
  void run(Workspace& work) override {
    const at::Tensor sum = linear_.group.leave(linear_.product(work.tensors[linear_.from]));
    work.tensors[linear_.to] = linear_.bias != nullptr ? sum + linear_.bias->value : sum;
  }

 private:
  SlicedLinear linear_;
};

/// The mask is the whole tensor's, seen as rows of features.
class DropoutInPair final : public Operation {
 public:
  DropoutInPair(const Given& given, const Flow& flow)
      : from_(given.needed_place("input")),
        to_(given.result()),
        p_(given.probability("p")),
        stream_(stream_of(given.node)),
        flow_(flow) {}
  void run(Workspace& work) override {
    const at::Tensor& x = work.tensors[from_];
    if (work.context.mode == Mode::evaluation || p_ == 0.0 || p_ == 1.0) {
      work.tensors[to_] = dropped(x, p_, work.context, stream_);
      return;
    }
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    work.tensors[to_] = dropout(rows, p_, work.context.dropout_key(stream_), flow_).view(x.sizes());
  }

 private:
  std::size_t from_, to_;
  double p_;
  std::uint32_t stream_;
  Flow flow_;
};

class ReshapeOfPart final : public Operation {
 public:
  ReshapeOfPart(const Given& given, const Scope& scope, const PartOfDim& cut, bool expands)
      : from_(given.needed_place("self")),
        to_(given.result()),
        sizes_(scope.graph[result_of(given.node)].tensor->sizes),
        cut_(cut),
        expands_(expands) {}
  void run(Workspace& work) override {
    Shape shape;
    for (const auto& size : sizes_) shape.push_back(size.evaluate(work.symbols));
    shape.at(cut_.dim) = cut_.of(shape.at(cut_.dim));
    const at::Tensor& whole = work.tensors[from_];
    work.tensors[to_] = expands_ ? whole.expand(shape) : whole.reshape(shape);
  }

 private:
  std::size_t from_, to_;
  std::vector<SizeExpression> sizes_;
  PartOfDim cut_;
  bool expands_;
};

/// An operation that takes the tensor at a place in another form.
class WithChanged final : public Operation {
 public:
  using Change = std::function<at::Tensor(const at::Tensor&)>;
  WithChanged(std::unique_ptr<Operation> operation, std::size_t place, Change change)
      : operation_(std::move(operation)), place_(place), change_(std::move(change)) {}
  void run(Workspace& work) override {
    const at::Tensor whole = work.tensors[place_];
    work.tensors[place_] = change_(whole);
    operation_->run(work);
    work.tensors[place_] = whole;
  }
  void add_cost(Cost& cost, const std::function<Shape(ValueId)>& shape_of) const override {
    operation_->add_cost(cost, shape_of);
  }

 private:
  std::unique_ptr<Operation> operation_;
  std::size_t place_;
  Change change_;
};

class SplitOfPart final : public Operation {
 public:
  SplitOfPart(const Given& given, const Scope& scope) : from_(given.needed_place("self")) {
    for (const ValueId value : given.node.outputs.at(0).values) to_.push_back(scope.place_of(value));
  }
  void run(Workspace& work) override {
    const at::Tensor& joint = work.tensors[from_];
    const auto parts = joint.split(joint.size(-1) / static_cast<std::int64_t>(to_.size()), -1);
    for (std::size_t i = 0; i < to_.size(); ++i) work.tensors[to_[i]] = parts.at(i);
  }

 private:
  std::size_t from_;
  std::vector<std::size_t> to_;
};

}  // namespace

std::unique_ptr<Operation> linear_into_slices(const Step& step, const Scope& scope, TensorGroup& group,
                                              const FeaturePart& part, Entering entering) {
  return std::make_unique<LinearIntoSlices>(SlicedLinear(Given(step, scope), scope, group), part, entering);
}

std::unique_ptr<Operation> linear_out_of_slices(const Step& step, const Scope& scope, TensorGroup& group,
                                                const FeaturePart& part) {
  return std::make_unique<LinearOutOfSlices>(SlicedLinear(Given(step, scope), scope, group), part);
}

std::unique_ptr<Operation> dropout_in_pair(const Step& step, const Scope& scope, const Flow& flow) {
  return std::make_unique<DropoutInPair>(Given(step, scope), flow);
}

std::unique_ptr<Operation> dropout_of_heads(const Step& step, const Scope& scope, const Flow& flow) {
  const Given given(step, scope);
  if (calls(given.node, "dropout")) return dropout_operation(given, "input", false, flow);
  return attention_operation(given, flow);
}

std::unique_ptr<Operation> reshape_of_part(const Step& step, const Scope& scope, const PartOfDim& cut) {
  return std::make_unique<ReshapeOfPart>(Given(step, scope), scope, cut, false);
}

std::unique_ptr<Operation> expansion_of_part(const Step& step, const Scope& scope, const PartOfDim& cut) {
  return std::make_unique<ReshapeOfPart>(Given(step, scope), scope, cut, true);
}

std::unique_ptr<Operation> split_of_part(const Step& step, const Scope& scope) {
  return std::make_unique<SplitOfPart>(Given(step, scope), scope);
}

std::unique_ptr<Operation> with_heads(std::unique_ptr<Operation> operation, std::size_t place,
                                      const Range& heads) {
  constexpr std::int64_t kFromLast = -3;
  return std::make_unique<WithChanged>(std::move(operation), place, [heads](const at::Tensor& whole) {
    return whole.narrow(kFromLast, heads.begin, heads.size());
  });
}

std::unique_ptr<Operation> with_entered(std::unique_ptr<Operation> operation, std::size_t place,
                                        TensorGroup& group) {
  return std::make_unique<WithChanged>(std::move(operation), place,
                                       [&group](const at::Tensor& whole) { return group.enter(whole); });
}

}  // namespace dtrain::models::exported
