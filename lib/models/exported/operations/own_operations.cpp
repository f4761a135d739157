#include "models/exported/operations/own_operations.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "models/compute/gradient_place.hpp"
#include "models/exported/operations/attention.hpp"
#include "models/exported/operations/batch_norm_operation.hpp"
#include "models/exported/operations/given.hpp"
#include "models/exported/operations/masks.hpp"
#include "models/exported/operations/recurrent.hpp"
#include "models/exported/operators.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/convolution/winograd_conv.hpp"
#include "models/layers/embedding_bag.hpp"
#include "models/layers/linear.hpp"

namespace dtrain::models::exported {
namespace {

class LinearOperation final : public Operation {
 public:
  LinearOperation(const Given& given, Parameter& weight, Parameter& bias)
      : from_(given.needed_place("input")),
        to_(given.result()),
        rows_(given.tensor("input")),
        weight_(weight),
        bias_(bias) {}
  void add_cost(Cost& cost, const std::function<Shape(ValueId)>& shape_of) const override {
    if (!rows_) return;
    const auto own = linear_factors(shape_of(*rows_), weight_.value);
    cost.factors.insert(cost.factors.end(), own.begin(), own.end());
  }
  void run(Workspace& work) override {
    const at::Tensor& input = work.tensors[from_];
    // dtrain's kernels ask no more. A file may say anything.
    TORCH_CHECK(input.dim() > 0 && input.size(-1) == weight_.value.size(1), "rows of ", input.sizes(),
                " meet weights of ", weight_.value.sizes());
    work.tensors[to_] = linear_product(input, weight_, bias_);
  }

 private:
  std::size_t from_, to_;
  std::optional<ValueId> rows_;
  Parameter& weight_;
  Parameter& bias_;
};

class ConvolutionOperation final : public Operation {
 public:
  enum class Kind { plain, transposed };
  /// `bias`: null where there is none; a transposed convolution has one.
  ConvolutionOperation(const Given& given, Kind kind, Parameter& weight, Parameter* bias,
                       const Conv2d::Geometry& geometry)
      : from_(given.needed_place("input")),
        to_(given.result()),
        images_(given.tensor("input")),
        kind_(kind),
        weight_(weight),
        bias_(bias),
        geometry_(geometry) {}
  void run(Workspace& work) override {
    const at::Tensor& input = work.tensors[from_];
    TORCH_CHECK(takes(input.sizes()), "images of ", input.sizes(), " meet weights of ",
                weight_.value.sizes());
    work.tensors[to_] = kind_ == Kind::plain ? convolve(input, weight_, bias_, geometry_)
                                             : convolve_transposed(input, weight_, *bias_, geometry_);
  }
  void add_cost(Cost& cost, const std::function<Shape(ValueId)>& shape_of) const override {
    const Shape images = images_ ? shape_of(*images_) : Shape();
    if (kind_ != Kind::plain || !takes(images)) return;
    const auto bias = bias_ != nullptr ? Conv2d::Bias::yes : Conv2d::Bias::no;
    const Cost own = convolution_cost(geometry_, bias, images, weight_);
    cost.step_bytes += own.step_bytes;
    cost.workspace_bytes = std::max(cost.workspace_bytes, own.workspace_bytes);
    cost.columns_bytes = std::max(cost.columns_bytes, own.columns_bytes);
    cost.factors.insert(cost.factors.end(), own.factors.begin(), own.factors.end());
  }

 private:
  bool takes(at::IntArrayRef images) const {
    return images.size() == 4 && images[1] == geometry_.in_channels && leaves_pixels(images[2]) &&
           leaves_pixels(images[3]);
  }
  bool leaves_pixels(std::int64_t length) const {
    const auto& [stride, padding, kernel] = std::tie(geometry_.stride, geometry_.padding, geometry_.kernel);
    return kind_ == Kind::plain ? length + 2 * padding >= kernel
                                : (length - 1) * stride - 2 * padding + kernel > 0;
  }

  std::size_t from_, to_;
  std::optional<ValueId> images_;
  Kind kind_;
  Parameter& weight_;
  Parameter* bias_;
  Conv2d::Geometry geometry_;
};

/// Of a value that nothing else uses.
class FunctionOperation final : public Operation {
 public:
  FunctionOperation(const Given& given, Function function)
      : from_(given.needed_place("self")),
        to_(given.result()),
        layer_(given.node.where(), function, Overwrite::input) {}
  void run(Workspace& work) override {
    work.tensors[to_] = layer_.forward({work.tensors[from_]}, work.context).at(0);
  }

 private:
  std::size_t from_, to_;
  Activation layer_;
};

/// The mean over each text's real words.
class WordsOperation final : public Operation {
 public:
  WordsOperation(const Given& given, std::size_t ids, Parameter* own_table)
      : table_(given.needed_place("weight")),
        ids_(ids),
        to_(given.result()),
        own_table_(own_table),
        name_(given.node.module) {
    if (own_table_ != nullptr) own_table_->by_rows = true;
  }
  void run(Workspace& work) override {
    const at::Tensor ids = work.tensors[ids_].to(at::kCPU, at::kInt).contiguous();
    auto* place = own_table_ != nullptr ? own_table_->place : nullptr;
    work.tensors[to_] =
        bag_means(ids, work.tensors[table_], place != nullptr ? place->rows() : nullptr, name_);
  }

 private:
  std::size_t table_, ids_, to_;
  Parameter* own_table_;
  std::string name_;
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

class ReshapeOperation final : public Operation {
 public:
  ReshapeOperation(const Given& given, std::vector<SizeExpression> sizes)
      : from_(given.needed_place("self")), to_(given.result()), sizes_(std::move(sizes)) {}
  void run(Workspace& work) override {
    std::vector<std::int64_t> shape;
    for (const auto& size : sizes_) shape.push_back(size.evaluate(work.symbols));
    work.tensors[to_] = work.tensors[from_].reshape(shape);
  }

 private:
  std::size_t from_, to_;
  std::vector<SizeExpression> sizes_;
};

class SqueezeOperation final : public Operation {
 public:
  SqueezeOperation(const Given& given, Shape dims)
      : from_(given.needed_place("self")), to_(given.result()), dims_(std::move(dims)) {}
  void run(Workspace& work) override { work.tensors[to_] = work.tensors[from_].squeeze(dims_); }

 private:
  std::size_t from_, to_;
  Shape dims_;
};

/// Squeezes what has one element in any batch. A micro-batch of one sample keeps its batch dim, as batches of
/// more do.
std::unique_ptr<Operation> squeeze(const Given& given, const Scope& scope) {
  const auto self = given.tensor("self");
  if (!self) return nullptr;
  const auto& sizes = scope.graph[*self].tensor->sizes;
  const auto* named = given.node.find("dim");
  const auto rank = std::ssize(sizes);
  Shape dims;
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const bool wanted = named == nullptr || std::ranges::any_of(named->sizes, [&](const Size& one) {
                          return !one.value && (one.number == dim || one.number + rank == dim);
                        });
    if (wanted && sizes[static_cast<std::size_t>(dim)].constant() == 1) dims.push_back(dim);
  }
  return std::make_unique<SqueezeOperation>(given, std::move(dims));
}

std::vector<SizeExpression> sizes_of(const Node& view, const Scope& scope) {
  std::vector<SizeExpression> sizes;
  for (const Size& size : view.find("size")->sizes)
    sizes.push_back(size.value ? *scope.graph[*size.value].number : SizeExpression(size.number));
  return sizes;
}

/// Whether there is a number for each output, or no bias: PyTorch's operators take one for all as well.
bool is_bias(const Parameter* bias, std::int64_t outputs) {
  return bias == nullptr || (bias->value.dim() == 1 && bias->value.size(0) == outputs);
}

std::unique_ptr<Operation> convolution(const Given& given, const Scope& scope) {
  const auto weight_value = given.tensor("weight");
  if (given.node.target.ends_with(".padding") || !weight_value) return nullptr;
  Parameter* weight = scope.own_parameter(*weight_value);
  const auto bias_value = given.tensor("bias");
  Parameter* bias = bias_value ? scope.own_parameter(*bias_value) : nullptr;
  if (weight == nullptr || (bias_value && bias == nullptr) || weight->value.dim() != 4) return nullptr;
  const auto& shape = weight->value.sizes();
  const auto stride = given.alike("stride", 1);
  const auto padding = given.alike("padding", 0);
  if (shape[2] != shape[3] || shape[2] < 1 || stride.value_or(0) < 1 || padding.value_or(-1) < 0 ||
      given.alike("dilation", 1) != 1 || given.alike("groups", 1) != 1 || !is_bias(bias, shape[0])) {
    return nullptr;
  }
  return std::make_unique<ConvolutionOperation>(given, ConvolutionOperation::Kind::plain, *weight, bias,
                                                Conv2d::Geometry{.in_channels = shape[1],
                                                                 .out_channels = shape[0],
                                                                 .kernel = shape[2],
                                                                 .stride = *stride,
                                                                 .padding = *padding});
}

std::unique_ptr<Operation> transposed(const Given& given, const Scope& scope) {
  const auto weight_value = given.tensor("weight");
  const auto bias_value = given.tensor("bias");
  if (!weight_value || !bias_value) return nullptr;
  Parameter* weight = scope.own_parameter(*weight_value);
  Parameter* bias = scope.own_parameter(*bias_value);
  if (weight == nullptr || bias == nullptr || weight->value.dim() != 4) return nullptr;
  const auto& shape = weight->value.sizes();
  const auto stride = given.alike("stride", 1);
  const auto padding = given.alike("padding", 0);
  if (shape[2] != shape[3] || shape[2] < 1 || stride.value_or(0) < 1 || padding.value_or(-1) < 0 ||
      given.alike("output_padding", 0) != 0 || given.alike("dilation", 1) != 1 ||
      given.alike("groups", 1) != 1 || !is_bias(bias, shape[1])) {
    return nullptr;
  }
  return std::make_unique<ConvolutionOperation>(given, ConvolutionOperation::Kind::transposed, *weight, bias,
                                                Conv2d::Geometry{.in_channels = shape[0],
                                                                 .out_channels = shape[1],
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
  if (own_weight == nullptr || own_bias == nullptr || own_weight->value.dim() != 2 ||
      !is_bias(own_bias, own_weight->value.size(0))) {
    return nullptr;
  }
  return std::make_unique<LinearOperation>(given, *own_weight, *own_bias);
}

/// Whether an image comes with a dim of samples: LibTorch's convolutions and pools take one without, too.
bool takes_images(const Given& given, const char* argument, const Scope& scope) {
  const auto value = given.tensor(argument);
  return value && scope.graph[*value].tensor->sizes.size() == 4;
}

bool halves(const Given& given) {
  const auto kernel = given.alike("kernel_size", 0);
  return kernel == 2 && given.alike("stride", 2) == 2 && given.alike("padding", 0) == 0 &&
         given.alike("dilation", 1) == 1 && !given.flag("ceil_mode", false);
}

/// The mask of real numbers of an attention, or nothing.
std::optional<ValueId> masked_by(const Given& given, const Scope& scope) {
  if (!calls(given.node, "scaled_dot_product_attention")) return std::nullopt;
  const auto mask = given.tensor("attn_mask");
  const bool is_real = mask && at::isFloatingType(scope.graph[*mask].tensor->type);
  return is_real ? mask : std::nullopt;
}

}  // namespace

// A guess for files that do not say it.
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

bool drops_in_training(const Node& node, bool in_training) {
  const auto* train = node.find("train");
  const bool off = train != nullptr && train->kind == Argument::Kind::boolean && !train->booleans.at(0);
  return !(in_training && off);
}

std::unique_ptr<Operation> reshape_operation(const Given& given, std::vector<SizeExpression> sizes) {
  return std::make_unique<ReshapeOperation>(given, std::move(sizes));
}

std::unique_ptr<Operation> own_operation(const Step& step, const Scope& scope, bool in_training) {
  const Given given(step, scope);
  const Node& node = given.node;
  if (calls(node, "batch_norm") && given.tensor("running_mean") && given.tensor("running_var"))
    return batch_norm_operation(step, given, scope, in_training);
  if (calls(node, "instance_norm") && given.tensor("running_mean")) {
    throw refused(node, "keeps running statistics, which would depend on the number of ranks",
                  "use InstanceNorm with track_running_stats=False");
  }
  if (calls(node, "dropout") || calls(node, "dropout_")) {
    const bool in_place = calls(node, "dropout_");
    if (in_place && step.copies == Step::Copies::never)
      throw refused(node, "drops in place what is used through a view",
                    "use nn.Dropout(p) without inplace=True");
    if (drops_in_training(node, in_training))
      return dropout_operation(given, in_place ? "self" : "input", step.is_written_later);
    return nullptr;
  }
  if (calls(node, "scaled_dot_product_attention") && given.real("dropout_p", 0.0) != 0)
    return attention_operation(given);
  if (const auto mask = masked_by(given, scope))
    return masked_attention_operation(given, scope.carries(*mask));
  if (calls(node, "lstm") || calls(node, "gru"))
    return recurrent_operation(node, scope, drops_in_training(node, in_training));
  if (calls(node, "linear")) return linear(given, scope);
  if (calls(node, "conv2d") && takes_images(given, "input", scope)) return convolution(given, scope);
  if (calls(node, "conv_transpose2d") && takes_images(given, "input", scope)) return transposed(given, scope);
  if (step.texts) {
    return std::make_unique<WordsOperation>(given, scope.place_of(*step.texts),
                                            scope.own_parameter(*given.tensor("weight")));
  }
  if (step.overwrites_input) {
    const auto function = calls(node, "relu")   ? Function::relu
                          : calls(node, "tanh") ? Function::tanh
                                                : Function::sigmoid;
    return std::make_unique<FunctionOperation>(given, function);
  }
  if (calls(node, "squeeze")) return squeeze(given, scope);
  if (calls(node, "max_pool2d") && takes_images(given, "self", scope) && halves(given))
    return std::make_unique<PoolOperation>(given);
  // Both take an image that lies otherwise than in PyTorch.
  if (calls(node, "view_as") && !step.is_written_later)
    return reshape_operation(given, scope.graph[result_of(node)].tensor->sizes);
  if ((calls(node, "view") && node.find("size") != nullptr) && !step.is_written_later)
    return reshape_operation(given, sizes_of(node, scope));
  return nullptr;
}

}  // namespace dtrain::models::exported
