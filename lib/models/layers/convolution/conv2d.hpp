#pragma once

#include <c10/core/MemoryFormat.h>

#include <optional>

#include "models/layer.hpp"

namespace dtrain::models {

/// Cross-correlation with a square kernel, stride and zero padding alike in both dims. Parameters NAME.weight
/// [out, in, k, k] and, unless the style leaves it out, NAME.bias [out].
class Conv2d final : public Layer {
 public:
  struct Geometry {
    std::int64_t in_channels = 1;
    std::int64_t out_channels = 1;
    std::int64_t kernel = 3;
    std::int64_t stride = 1;
    std::int64_t padding = 0;

    std::int64_t extent_after(std::int64_t extent) const;   ///< Height or width of the output.
    std::int64_t extent_before(std::int64_t extent) const;  ///< Of the transposed convolution's output.
  };

  enum class Start {
    torch,           ///< Both from U(-1/sqrt(in k k), 1/sqrt(in k k)), PyTorch's default of the layer.
    kaiming_fan_out  ///< weight from N(0, 2 / (out k k)), bias 0: torchvision's networks (He et al. 2015).
  };
  enum class Bias { yes, no };
  /// CHWN (layers/convolution/chwn_conv.hpp) is the faster layout for few channels. Images come so from the
  /// layer before, or the layer brings them to it.
  enum class Images { as_they_come, chwn, made_chwn };
  struct Style {
    Start start = Start::torch;
    Bias bias = Bias::yes;
    /// Of the weight; it decides the output's. Channels last is the faster one on a CPU in wide layers.
    at::MemoryFormat format = at::MemoryFormat::Contiguous;
    Slicing slicing = Slicing::none;
    Images images = Images::as_they_come;
  };

  Conv2d(const std::string& name, const Geometry& geometry) : Conv2d(name, geometry, Style()) {}
  Conv2d(const std::string& name, const Geometry& geometry, const Style& style);

  /// [N, in, H, W] -> [N, out, H', W']. Throws Error (exit code 2) for another shape.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;
  std::int64_t own_outputs() const override;
  std::unique_ptr<Layer> cut_outputs(std::int64_t kept) override;

  const Geometry& geometry() const { return geometry_; }
  Images images() const { return images_; }

 private:
  at::Tensor convolved(const at::Tensor& input, Parameter* bias);

  Geometry geometry_;
  Images images_;
  TensorGroup* group_ = nullptr;  // null: not sliced
};

/// For layers that convolve inside. Adds the parameters of a convolution called NAME to a layer's.
void add_convolution(const std::string& name, const Conv2d::Geometry& geometry, const Conv2d::Style& style,
                     std::vector<Parameter>& parameters);

/// The shape [N, out, H', W'] after a convolution. Throws Error (exit code 2), naming the layer, for an input
/// that does not fit.
Shape convolved_shape(const std::string& layer, const Conv2d::Geometry& geometry, const Shape& input);

/// Leaves a convolution's weight and bias (or null) this rank's part, and `geometry` with it: of the outputs,
/// which are returned, or of the inputs, `flow`'s. `out_dim`: which dim of the weight its outputs are, 0 or
/// 1; the other one its inputs.
Flow slice_convolution(Conv2d::Geometry& geometry, Parameter& weight, Parameter* bias,
                       const TensorGroup& group, const Flow& flow, std::int64_t out_dim = 0);

/// Elements of the columns that LibTorch lays out in double, of the larger side's `channels`; `small`: the
/// smaller side.
double columns_of(const Conv2d::Geometry& geometry, const Shape& small, std::int64_t channels);

/// Forward cost of a convolution; `parameter` is its weight.
Cost convolution_cost(const Conv2d::Geometry& geometry, Conv2d::Bias bias, const Shape& input,
                      const Parameter& parameter);

/// The operation, by the fastest way there is; `bias` may be null.
at::Tensor convolve(const at::Tensor& input, Parameter& weight, Parameter* bias,
                    const Conv2d::Geometry& geometry);

}  // namespace dtrain::models
