#pragma once

#include <memory>

#include "models/compute/direct_pass.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

/// Whether small_linear is the faster way: one thread, a dense float or double matrix in the CPU's memory,
/// small enough to stay in its caches, and a processor with FMA.
bool fits_small_linear(const at::Tensor& input, const at::Tensor& weight);
/// Whether it will be so for so many dense rows, which need not be there yet.
bool has_small_linear_size(std::int64_t rows, const at::Tensor& weight);

/// Whether backward is to leave factors in place of gradients (ProductFactors), which small_linear does.
bool gives_factors(const at::Tensor& input, const Parameter& weight);

/// input W^T + bias as one node of the graph, on dtrain's own kernels: for matrices of a few hundred columns
/// LibTorch spends as long on the way to its kernels and in packing as on the product.
/// Shapes: `input` [n, in], `weight` [out, in], `bias` [out]. Not differentiable twice. Gradients are written
/// into the parameters' gradient slots; both must outlive the graph.
at::Tensor small_linear(const at::Tensor& input, Parameter& weight, Parameter& bias);

/// small_linear() without a graph, for where the processor has the kernels. It leaves factors where they are
/// wanted, and fits without them only where small_linear() is the faster way.
std::unique_ptr<DirectPass> direct_small_linear(Parameter& weight, Parameter& bias);

}  // namespace dtrain::models
