#pragma once

#include <string>
#include <vector>

#include "models/layer.hpp"

namespace dtrain::models {

/// An element-wise function without parameters.
enum class Function { relu, tanh, gelu, sigmoid };

/// relu, tanh, gelu, sigmoid.
const std::vector<std::string>& function_names();

/// Throws Error (exit code 2) that lists the functions there are.
Function function_of(const std::string& name);

/// Whether an activation may overwrite its input: only where the layer before needs its output no more, as
/// Linear and Conv2d do. It never does at the head of a segment, whose input is somebody else's.
enum class Overwrite { never, input };

class Activation final : public Layer {
 public:
  Activation(const std::string& name, Function function, Overwrite overwrite)
      : Layer(name), function_(function), overwrite_(overwrite) {}

  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override { return inputs; }
  Cost cost(const std::vector<Shape>& inputs) const override;
  Function function() const { return function_; }
  Overwrite overwrite() const { return overwrite_; }

 private:
  Function function_;
  Overwrite overwrite_;
};

}  // namespace dtrain::models
