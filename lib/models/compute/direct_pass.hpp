#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtrain::models {

struct Parameter;  // models/layer.hpp

/// One layer's training pass as calls of its kernels, without LibTorch's graph. It keeps between forward()
/// and backward() what the latter needs, and its memory from one micro-batch to the next. CPU, one thread.
class DirectPass {
 public:
  DirectPass() = default;
  virtual ~DirectPass() = default;
  DirectPass(const DirectPass&) = delete;
  DirectPass& operator=(const DirectPass&) = delete;

  /// Whether forward() and backward() are as fast as the layer itself in a step of so many micro-batches,
  /// with so many samples each.
  virtual bool fits(std::int64_t /*samples*/, std::size_t /*micro_batches*/) const { return true; }

  /// What the layer gives for `input` [n, ...]. It may write into `input`, and what it returns is good until
  /// its next call. Throws Error as the layer does.
  virtual at::Tensor forward(const at::Tensor& input) = 0;

  /// After forward(): leaves the parameters' gradients (leave_gradient(), or their factors) and returns the
  /// input's, in its shape. It may write into `gradient`. `wanted`: whether anybody takes the input's; if not
  /// what is returned is undefined.
  virtual at::Tensor backward(const at::Tensor& gradient, bool wanted) = 0;
};

/// Adds `gradient`, in memory of Parameter::take_gradient_memory() or the caller's last reference to its own,
/// to the parameter's .grad and tells the collector that it is there, as LibTorch's graph does.
void leave_gradient(Parameter& parameter, at::Tensor gradient);

/// Whether `kept`, memory for what is written anew in each micro-batch, has that shape and type.
bool serves(const at::Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options);

/// `kept`, made anew where it does not serve.
at::Tensor& kept_memory(at::Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace dtrain::models
