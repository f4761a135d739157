#include "models/exported/own_operations.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/printable.hpp"
#include "models/exported/masks.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/recurrent.hpp"
#include "models/layers/batch_norm.hpp"
#include "models/layers/conv2d.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/linear.hpp"
#include "models/layers/max_pool2d.hpp"

namespace dtrain::models::exported {
namespace {

/// The arguments of a node, by name.
class Given {
 public:
  Given(const Step& step, const Scope& scope) : node(scope.graph.nodes[step.node]), scope_(scope) {}

  const Node& node;

  std::optional<ValueId> tensor(const char* name) const {
    const auto* argument = node.find(name);
    if (argument == nullptr || argument->kind == Argument::Kind::none) return std::nullopt;
    if (argument->kind != Argument::Kind::tensor || !argument->values.at(0)) throw wrong(name);
    return argument->values[0];
  }
  std::optional<std::size_t> place(const char* name) const {
    const auto value = tensor(name);
    return value ? std::optional(scope_.place_of(*value)) : std::nullopt;
  }
  std::size_t needed_place(const char* name) const {
    const auto found = place(name);
    if (!found) throw wrong(name);
    return *found;
  }
  bool flag(const char* name, bool otherwise) const {
    const auto* argument = node.find(name);
    if (argument == nullptr) return otherwise;
    if (argument->kind != Argument::Kind::boolean) throw wrong(name);
    return argument->booleans.at(0);
  }
  double real(const char* name, double otherwise) const {
    const auto* argument = node.find(name);
    if (argument == nullptr || argument->kind == Argument::Kind::none) return otherwise;
    if (argument->kind == Argument::Kind::real) return argument->reals.at(0);
    if (argument->kind == Argument::Kind::size && !argument->sizes.at(0).value)
      return static_cast<double>(argument->sizes[0].number);
    throw wrong(name);
  }
  /// One number for all dims; nothing where they differ or are not known.
  std::optional<std::int64_t> alike(const char* name, std::int64_t otherwise) const {
    const auto* argument = node.find(name);
    if (argument == nullptr) return otherwise;
    if (argument->sizes.empty()) {
      return argument->kind == Argument::Kind::sizes ? std::optional(otherwise) : std::nullopt;
    }
    for (const Size& size : argument->sizes) {
      if (size.value || size.number != argument->sizes[0].number) return std::nullopt;
    }
    return argument->sizes[0].number;
  }
  std::size_t result() const {
    if (node.outputs.empty() || node.outputs[0].values.size() != 1) throw wrong("result");
    return scope_.place_of(node.outputs[0].values[0]);
  }
  double probability(const char* name) const {
    const double p = real(name, 0.5);
    if (!(p >= 0.0 && p <= 1.0)) throw refused(node, fmt::format("has a probability of {}", p), "use 0 to 1");
    return scope_.drops ? p : 0.0;
  }

 private:
  Error wrong(const char* name) const {
    return refused(node, fmt::format("has an argument {} that dtrain does not understand", name),
                   "export it with PyTorch 2.11");
  }
  const Scope& scope_;
};

class DropoutOperation final : public Operation {
 public:
  DropoutOperation(const Given& given, const char* input)
      : from_(given.needed_place(input)),
        to_(given.result()),
        p_(given.probability("p")),
        stream_(stream_of(given.node)) {}
  void run(Workspace& work) override {
    work.tensors[to_] = dropped(work.tensors[from_], p_, work.context, stream_);
  }

 private:
  std::size_t from_, to_;
  double p_;
  std::uint32_t stream_;
};

/// Of 2 to 5 dims; those behind the channels count as one image.
class BatchNormOperation final : public Operation {
 public:
  BatchNormOperation(const Step& step, const Given& given, const Scope& scope, bool in_training)
      : from_(given.needed_place("input")),
        to_(given.result()),
        weight_(given.place("weight")),
        bias_(given.place("bias")),
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
    // batch_norm() takes neighbours.
    std::vector<Buffer> statistics = {std::move(*mean_), std::move(*variance_)};
    const auto give_back = [&] {
      *mean_ = std::move(statistics[0]);
      *variance_ = std::move(statistics[1]);
    };
    at::Tensor made;
    try {
      made = batch_norm(
          {.input = x, .residual = {}, .then = relu_ ? kernels::Then::relu : kernels::Then::nothing},
          {.parameter = 0, .buffer = 0, .epsilon = epsilon_}, affine, statistics, context);
    } catch (...) {
      give_back();
      throw;
    }
    give_back();
    work.tensors[to_] = given.dim() == 4 ? made : made.reshape(given.sizes());
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
  std::optional<std::size_t> weight_, bias_;
  bool relu_, frozen_;
  double epsilon_ = BatchNorm::kEpsilon;
  Buffer* mean_ = nullptr;
  Buffer* variance_ = nullptr;
};

class LinearOperation final : public Operation {
 public:
  LinearOperation(const Given& given, Parameter& weight, Parameter& bias)
      : from_(given.needed_place("input")), to_(given.result()), weight_(weight), bias_(bias) {}
  void run(Workspace& work) override {
    work.tensors[to_] = linear_product(work.tensors[from_], weight_, bias_);
  }

 private:
  std::size_t from_, to_;
  Parameter& weight_;
  Parameter& bias_;
};

class ConvolutionOperation final : public Operation {
 public:
  ConvolutionOperation(const Given& given, Parameter& weight, Parameter* bias,
                       const Conv2d::Geometry& geometry)
      : from_(given.needed_place("input")),
        to_(given.result()),
        weight_(weight),
        bias_(bias),
        geometry_(geometry) {}
  void run(Workspace& work) override {
    work.tensors[to_] = convolve(work.tensors[from_], weight_, bias_, geometry_);
  }

 private:
  std::size_t from_, to_;
  Parameter& weight_;
  Parameter* bias_;
  Conv2d::Geometry geometry_;
};

class PoolOperation final : public Operation {
 public:
  explicit PoolOperation(const Given& given)
      : from_(given.needed_place("self")), to_(given.result()), layer_(given.node.where(), 2) {}
  void run(Workspace& work) override {
    work.tensors[to_] = layer_.forward({work.tensors[from_]}, work.context).at(0);
  }

 private:
  std::size_t from_, to_;
  MaxPool2d layer_;
};

/// LibTorch's operator may refuse memory that dtrain's kernels have laid out; a copy then does.
class ReshapeOperation final : public Operation {
 public:
  ReshapeOperation(const Given& given, const Scope& scope)
      : from_(given.needed_place("self")), to_(given.result()) {
    for (const Size& size : given.node.find("size")->sizes)
      sizes_.push_back(size.value ? *scope.graph[*size.value].number : SizeExpression(size.number));
  }
  void run(Workspace& work) override {
    std::vector<std::int64_t> shape;
    for (const auto& size : sizes_) shape.push_back(size.evaluate(work.symbols));
    work.tensors[to_] = work.tensors[from_].reshape(shape);
  }

 private:
  std::size_t from_, to_;
  std::vector<SizeExpression> sizes_;
};

/// Attention whose weights are dropped: softmax(Q K^T scale + mask), dropped, times V.
/// Source: torch.nn.functional.scaled_dot_product_attention's documentation.
class AttentionOperation final : public Operation {
 public:
  explicit AttentionOperation(const Given& given)
      : query_(given.needed_place("query")),
        key_(given.needed_place("key")),
        value_(given.needed_place("value")),
        mask_(given.place("attn_mask")),
        to_(given.result()),
        p_(given.probability("dropout_p")),
        causal_(given.flag("is_causal", false)),
        grouped_(given.flag("enable_gqa", false)),
        stream_(stream_of(given.node)) {
    const double scale = given.real("scale", -1.0);
    if (scale >= 0) scale_ = scale;
  }

  void run(Workspace& work) override {
    const at::Tensor& query = work.tensors[query_];
    at::Tensor key = work.tensors[key_];
    at::Tensor value = work.tensors[value_];
    const auto mask = mask_ ? std::optional(work.tensors[*mask_]) : std::nullopt;
    if (work.context.mode == Mode::evaluation) {
      work.tensors[to_] =
          at::scaled_dot_product_attention(query, key, value, mask, 0.0, causal_, scale_, grouped_);
      return;
    }
    if (grouped_) {
      key = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
      value = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
    }
    const double scale = scale_.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
    at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    if (causal_) {
      const auto seen = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
      scores = scores.masked_fill(seen.logical_not(), kNever);
    }
    if (mask) {
      scores =
          mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), kNever) : scores + *mask;
    }
    const at::Tensor weights = dropped(at::_safe_softmax(scores, -1), p_, work.context, stream_);
    work.tensors[to_] = at::matmul(weights.to(value.scalar_type()), value);
  }

 private:
  std::size_t query_, key_, value_;
  std::optional<std::size_t> mask_;
  std::size_t to_;
  double p_;
  bool causal_, grouped_;
  std::uint32_t stream_;
  std::optional<double> scale_;
};

std::unique_ptr<Operation> convolution(const Given& given, const Scope& scope) {
  const auto weight_value = given.tensor("weight");
  if (!calls(given.node, "conv2d") || given.node.target.ends_with(".padding") || !weight_value)
    return nullptr;
  Parameter* weight = scope.own_parameter(*weight_value);
  const auto bias_value = given.tensor("bias");
  Parameter* bias = bias_value ? scope.own_parameter(*bias_value) : nullptr;
  if (weight == nullptr || (bias_value && bias == nullptr) || weight->value.dim() != 4) return nullptr;
  const auto& shape = weight->value.sizes();
  const auto stride = given.alike("stride", 1);
  const auto padding = given.alike("padding", 0);
  if (shape[2] != shape[3] || !stride || !padding || given.alike("dilation", 1) != 1 ||
      given.alike("groups", 1) != 1) {
    return nullptr;
  }
  return std::make_unique<ConvolutionOperation>(given, *weight, bias,
                                                Conv2d::Geometry{.in_channels = shape[1],
                                                                 .out_channels = shape[0],
                                                                 .kernel = shape[2],
                                                                 .stride = *stride,
                                                                 .padding = *padding});
}

std::unique_ptr<Operation> linear(const Given& given, const Scope& scope) {
  const auto weight = given.tensor("weight");
  const auto bias = given.tensor("bias");
  if (!weight || !bias) return nullptr;
  Parameter* own_weight = scope.own_parameter(*weight);
  Parameter* own_bias = scope.own_parameter(*bias);
  if (own_weight == nullptr || own_bias == nullptr) return nullptr;
  return std::make_unique<LinearOperation>(given, *own_weight, *own_bias);
}

bool halves(const Given& given) {
  const auto kernel = given.alike("kernel_size", 0);
  return kernel == 2 && given.alike("stride", 2) == 2 && given.alike("padding", 0) == 0 &&
         given.alike("dilation", 1) == 1 && !given.flag("ceil_mode", false);
}

}  // namespace

bool exported_in_training(const Graph& graph) {
  bool has_flags = false;
  for (const Node& node : graph.nodes) {
    for (const char* flag : {"training", "train"}) {
      const auto* argument = node.find(flag);
      if (argument == nullptr || argument->kind != Argument::Kind::boolean) continue;
      has_flags = true;
      if (argument->booleans.at(0)) return true;
    }
  }
  return !has_flags;
}

std::unique_ptr<Operation> own_operation(const Step& step, const Scope& scope, bool in_training) {
  const Given given(step, scope);
  const Node& node = given.node;
  if (calls(node, "batch_norm") && given.tensor("running_mean") && given.tensor("running_var"))
    return std::make_unique<BatchNormOperation>(step, given, scope, in_training);
  if (calls(node, "dropout") || calls(node, "dropout_")) {
    const bool in_place = calls(node, "dropout_");
    if (in_place && step.copies == Step::Copies::never)
      throw refused(node, "drops in place what is used through a view",
                    "use nn.Dropout(p) without inplace=True");
    const bool off = in_training && !given.flag("train", true);
    if (!off) return std::make_unique<DropoutOperation>(given, in_place ? "self" : "input");
    return nullptr;
  }
  if (calls(node, "scaled_dot_product_attention") && given.real("dropout_p", 0.0) > 0)
    return std::make_unique<AttentionOperation>(given);
  if (calls(node, "lstm") || calls(node, "gru")) return recurrent_operation(node, scope);
  if (calls(node, "linear")) return linear(given, scope);
  if (calls(node, "conv2d")) return convolution(given, scope);
  if (calls(node, "max_pool2d") && halves(given)) return std::make_unique<PoolOperation>(given);
  if ((calls(node, "view") && node.find("size") != nullptr) && !step.is_written_later)
    return std::make_unique<ReshapeOperation>(given, scope);
  return nullptr;
}

}  // namespace dtrain::models::exported
