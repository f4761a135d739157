#pragma once

#include "models/compute/step_memory.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

/// y = x W^T + b over the last dim. Parameters NAME.weight [out, in] and NAME.bias [out], from
/// U(-1/sqrt(in), 1/sqrt(in)), PyTorch's default. Sliced by columns it gives a part of its outputs; sliced by
/// rows it takes a part of its inputs, and the ranks' products are added up.
class Linear final : public Layer {
 public:
  Linear(const std::string& name, std::int64_t in_features, std::int64_t out_features,
         Slicing slicing = Slicing::none);

  /// [..., in] -> [..., out]. Throws Error (exit code 2) when the last dim is not `in`.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;
  std::int64_t own_outputs() const override { return group_ == nullptr ? out_features_ : 0; }
  std::unique_ptr<Layer> cut_outputs(std::int64_t kept) override;

 private:
  std::int64_t in_features_;
  std::int64_t out_features_;
  TensorGroup* group_ = nullptr;  // null: not sliced
};

/// The operation itself, by the fastest way there is, for layers that multiply inside: x W^T + b. Gradients
/// may be written into the parameters' gradient slots; both must outlive the graph.
at::Tensor linear_product(const at::Tensor& input, Parameter& weight, Parameter& bias);
/// Cost::factors of it for `input` [rows, in]. `of_small`: whether there is a faster way for small weights.
std::vector<Cost::Factors> linear_factors(const Shape& input, const at::Tensor& weight,
                                          StepMemory::Otherwise of_small = StepMemory::Otherwise::faster);

}  // namespace dtrain::models
