#include "models/exported/slicing/sliced_linear.hpp"

#include <ATen/ops/linear.h>

#include "models/exported/given.hpp"
#include "models/exported/masks.hpp"
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

class FirstOfPair final : public Operation {
 public:
  FirstOfPair(const SlicedLinear& linear, Range part) : linear_(linear) {
    hold(linear_.weight, part);
    if (linear_.bias != nullptr) hold(*linear_.bias, part);
  }
  void run(Workspace& work) override {
    const at::Tensor input = linear_.group.enter(work.tensors[linear_.from]);
    work.tensors[linear_.to] = linear_.bias != nullptr ? linear_product(input, linear_.weight, *linear_.bias)
                                                       : at::linear(input, linear_.weight.value);
  }

 private:
  static void hold(Parameter& parameter, Range part) {
    parameter.slicing = Slicing::column;
    hold_slice(parameter, 0, part);
  }
  SlicedLinear linear_;
};

class SecondOfPair final : public Operation {
 public:
  SecondOfPair(const SlicedLinear& linear, Range part) : linear_(linear) {
    linear_.weight.slicing = Slicing::row;
    hold_slice(linear_.weight, 1, part);
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

}  // namespace

std::unique_ptr<Operation> first_of_pair(const Step& step, const Scope& scope, TensorGroup& group,
                                         Range part) {
  return std::make_unique<FirstOfPair>(SlicedLinear(Given(step, scope), scope, group), part);
}

std::unique_ptr<Operation> second_of_pair(const Step& step, const Scope& scope, TensorGroup& group,
                                          Range part) {
  return std::make_unique<SecondOfPair>(SlicedLinear(Given(step, scope), scope, group), part);
}

std::unique_ptr<Operation> dropout_in_pair(const Step& step, const Scope& scope, const Flow& flow) {
  return std::make_unique<DropoutInPair>(Given(step, scope), flow);
}

}  // namespace dtrain::models::exported
