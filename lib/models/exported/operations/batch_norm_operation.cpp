#include "models/exported/operations/batch_norm_operation.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "models/layers/batch_norm.hpp"

namespace dtrain::models::exported {
namespace {

/// Dims behind the channels count as one image.
class BatchNormOperation final : public Operation {
 public:
  BatchNormOperation(const Step& step, const Given& given, const Scope& scope, bool in_training)
      : from_(given.needed_place("input")),
        to_(given.result()),
        weight_(given.place("weight")),
        bias_(given.place("bias")),
        residual_(step.residual ? std::optional(scope.place_of(*step.residual)) : std::nullopt),
        relu_(step.relu_follows),
        // A module in evaluation mode inside one that trains keeps its statistics.
        frozen_(in_training && !given.flag("training", true)) {
    epsilon_ = given.real("eps", BatchNorm::kEpsilon);
    for (const char* name : {"running_mean", "running_var"}) {
      Buffer* buffer = scope.buffer(*given.tensor(name));
      if (buffer == nullptr) {
        throw refused(given.node, "has running statistics that are no buffer of its own",
                      "call each BatchNorm module once in forward, and make another one for the second call");
      }
      buffer->value = buffer->value.to(at::kFloat);  // until the model goes to the run's type
      buffer->momentum = given.real("momentum", BatchNorm::kMomentum);
      buffer->update = frozen_ ? Buffer::Update::constant : Buffer::Update::moving_mean;
      if (!frozen_) buffer->step_sum = at::zeros({1, buffer->value.numel()}, at::kDouble);
      if (mean_ == nullptr) {
        mean_ = buffer;
      } else {
        variance_ = buffer;
      }
    }
  }

  void run(Workspace& work) override {
    const at::Tensor& given = work.tensors[from_];
    const at::Tensor x = images(given);
    Context context = work.context;
    if (frozen_) context.mode = Mode::evaluation;
    const auto channels = x.size(1);
    const auto options = at::TensorOptions().dtype(work.type).device(x.device());
    const std::vector<Parameter> affine = {
        {.name = "weight", .value = weight_ ? work.tensors[*weight_] : at::ones({channels}, options)},
        {.name = "bias", .value = bias_ ? work.tensors[*bias_] : at::zeros({channels}, options)}};
    for (const at::Tensor& one : {mean_->value, variance_->value, affine[0].value, affine[1].value}) {
      TORCH_CHECK(one.numel() == channels, "images of ", channels, " channels meet numbers of ", one.numel());
    }
    const at::Tensor beside = residual_ ? work.tensors[*residual_] : at::Tensor();
    const bool together = !beside.defined() || beside.scalar_type() == x.scalar_type();
    const auto then = relu_ ? kernels::Then::relu : kernels::Then::nothing;
    // batch_norm() takes neighbours.
    std::vector<Buffer> statistics = {std::move(*mean_), std::move(*variance_)};
    const auto give_back = [&] {
      *mean_ = std::move(statistics[0]);
      *variance_ = std::move(statistics[1]);
    };
    at::Tensor made;
    try {
      made = batch_norm({.input = x,
                         .residual = beside.defined() && together ? images(beside) : at::Tensor(),
                         .then = together ? then : kernels::Then::nothing},
                        {.parameter = 0, .buffer = 0, .epsilon = epsilon_}, affine, statistics, context);
    } catch (...) {
      give_back();
      throw;
    }
    give_back();
    made = given.dim() == 4 ? made : made.reshape(given.sizes());
    if (!together) made = relu_ ? (made + beside).relu() : made + beside;  // in mixed precision
    work.tensors[to_] = made;
  }

 private:
  static at::Tensor images(const at::Tensor& x) {
    if (x.dim() == 4) return x;
    if (x.dim() == 2) return x.reshape({x.size(0), x.size(1), 1, 1});
    std::int64_t pixels = 1;
    for (std::int64_t i = 2; i < x.dim(); ++i) pixels *= x.size(i);
    return x.reshape({x.size(0), x.size(1), pixels, 1});
  }

  std::size_t from_, to_;
  std::optional<std::size_t> weight_, bias_, residual_;
  bool relu_, frozen_;
  double epsilon_ = BatchNorm::kEpsilon;
  Buffer* mean_ = nullptr;
  Buffer* variance_ = nullptr;
};

}  // namespace

std::unique_ptr<Operation> batch_norm_operation(const Step& step, const Given& given, const Scope& scope,
                                                bool in_training) {
  return std::make_unique<BatchNormOperation>(step, given, scope, in_training);
}

}  // namespace dtrain::models::exported
