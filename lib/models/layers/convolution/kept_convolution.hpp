#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include "models/layers/convolution/conv2d.hpp"

namespace dtrain::models {

/// What a node of the graph keeps of a convolution beside tensors. The layer outlives the graph of each step.
struct KeptConvolution : torch::CustomClassHolder {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< Null: it has none.
  Conv2d::Geometry geometry;
  at::Tensor factor = {};  ///< The weight in half precision, where products are.
  KeptConvolution(Parameter* weight_of, Parameter* bias_of, const Conv2d::Geometry& by)
      : weight(weight_of), bias(bias_of), geometry(by) {}

  static void keep(torch::autograd::AutogradContext* context,
                   const c10::intrusive_ptr<KeptConvolution>& kept) {
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
  }
  static KeptConvolution& of(torch::autograd::AutogradContext* context) {
    return static_cast<KeptConvolution&>(*context->saved_data["kept"].toCapsule());
  }
};

}  // namespace dtrain::models
