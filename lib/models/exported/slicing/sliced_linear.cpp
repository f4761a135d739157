#include "models/exported/slicing/sliced_linear.hpp"

#include <ATen/ops/linear.h>

#include <utility>
#include <vector>

#include "models/exported/attention.hpp"
#include "models/exported/given.hpp"
#include "models/exported/masks.hpp"
#include "models/exported/own_operations.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/linear.hpp"
#include "models/slicing/slices.hpp"

namespace dtrain::models::exported {
namespace {

/// What both have: the parameters, of which the layer keeps its part.
struct SlicedLinear {
  SlicedLinear(const Given& given, const Scope& scope, TensorGroup& its_group)
      : from(given.needed_place("input")),
        to(given.result()),
        weight(*scope.own_parameter(*given.tensor("weight"))),
        bias(given.tensor("bias") ? scope.own_parameter(*given.tensor("bias")) : nullptr),
        group(its_group) {}

  std::size_t from, to;
  Parameter& weight;
  Parameter* bias;
  TensorGroup& group;
};

class LinearIntoSlices final : public Operation {
 public:
  LinearIntoSlices(const SlicedLinear& linear, const FeaturePart& outputs) : linear_(linear) {
    hold(linear_.weight, outputs, {linear_.weight.value.size(1)});
    if (linear_.bias != nullptr) hold(*linear_.bias, outputs, {});
  }
  void run(Workspace& work) override {
    const at::Tensor input = linear_.group.enter(work.tensors[linear_.from]);
    work.tensors[linear_.to] = linear_.bias != nullptr ? linear_product(input, linear_.weight, *linear_.bias)
                                                       : at::linear(input, linear_.weight.value);
  }

 private:
  static void hold(Parameter& parameter, const FeaturePart& outputs, const Shape& rest) {
    parameter.slicing = outputs.view.empty() ? Slicing::column : Slicing::heads;
    Shape view = outputs.view;
    if (!view.empty()) view.insert(view.end(), rest.begin(), rest.end());
    hold_slice(parameter, outputs.dim, outputs.part, view);
  }
  SlicedLinear linear_;
};

class LinearOutOfSlices final : public Operation {
 public:
  LinearOutOfSlices(const SlicedLinear& linear, const FeaturePart& inputs) : linear_(linear) {
    linear_.weight.slicing = Slicing::row;
    Shape view = inputs.view;
    if (!view.empty()) view.insert(view.begin(), linear_.weight.value.size(0));
    hold_slice(linear_.weight, inputs.dim + 1, inputs.part, view);
  }
  void run(Workspace& work) override {
    const at::Tensor sum = linear_.group.leave(at::linear(work.tensors[linear_.from], linear_.weight.value));
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
                                              const FeaturePart& part) {
  return std::make_unique<LinearIntoSlices>(SlicedLinear(Given(step, scope), scope, group), part);
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
  if (calls(given.node, "dropout")) return dropout_operation(given, "input", flow);
  return attention_operation(given, flow);
}

std::unique_ptr<Operation> reshape_of_part(const Step& step, const Scope& scope, std::size_t dim,
                                           std::int64_t extent) {
  const Given given(step, scope);
  auto sizes = scope.graph[given.node.outputs[0].values[0]].tensor->sizes;
  sizes.at(dim) = SizeExpression(extent);
  return reshape_operation(given, std::move(sizes));
}

std::unique_ptr<Operation> split_of_part(const Step& step, const Scope& scope) {
  return std::make_unique<SplitOfPart>(Given(step, scope), scope);
}

}  // namespace dtrain::models::exported
