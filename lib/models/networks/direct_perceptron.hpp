#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

/// The training pass of a small perceptron, forward and back, as calls of its layers' kernels one after the
/// other. LibTorch's graph and the way through its dispatcher take longer than the products of a layer with a
/// few hundred columns.
class DirectPerceptron {
 public:
  /// Null unless `model`, borrowed, is a classifier on the CPU of Flatten, Linear and ReLU alone, on a
  /// processor that has the kernels.
  static std::unique_ptr<DirectPerceptron> of(const Model& model);

  /// Whether all its gradients are wanted as factors (GradientPlace::factors()): pass() leaves nothing else.
  bool fits() const;

  /// The sums of cross_entropy_sums(), and in the weights' places the factors of the loss's gradients.
  /// `inputs` [n, ...] of the parameters' type, `targets` [n] of kLong. Throws Error (exit code 3) for a
  /// target that is no class. Each sample's bits depend on nothing but that sample.
  LossSums forward(const at::Tensor& inputs, const at::Tensor& targets);
  /// After forward(), of the same samples.
  void backward();

 private:
  struct Product {
    const Parameter* weight;  // [out, in]
    const Parameter* bias;
    bool rectified;  // a ReLU follows
  };
  explicit DirectPerceptron(std::vector<Product> products) : products_(std::move(products)) {}
  template <class T>
  LossSums forward_as(const at::Tensor& targets);
  template <class T>
  void backward_as();

  std::vector<Product> products_;
  std::vector<at::Tensor> inputs_;  // by product, and the outputs, which become their own gradient
};

}  // namespace dtrain::models
