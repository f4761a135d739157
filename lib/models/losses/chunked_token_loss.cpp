#include "models/losses/chunked_token_loss.hpp"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/full_product.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kTile = 128;  // rows that a GPU's products take together

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

class ChunkedTokenLoss : public torch::autograd::Function<ChunkedTokenLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& value,
                            const at::Tensor& words, const at::Tensor& targets, std::int64_t rows,
                            const Parameter* parameter) {
    const std::int64_t count = words.size(0);
    const at::Tensor padded = padded_columns(count) == count
                                  ? words
                                  : at::constant_pad_nd(words, {0, 0, 0, padded_columns(count) - count});
    const auto full = input.options().dtype(at::kFloat).requires_grad(false);
    const at::Tensor losses = at::empty({input.size(0)}, full);
    const at::Tensor of_input = at::empty_like(input);
    at::Tensor of_words = at::empty(padded.sizes(), full);
    if (input.size(0) == 0) of_words.zero_();
    at::Tensor logits =
        at::empty({std::min(rows, input.size(0)), padded.size(0)}, input.options().requires_grad(false));
    const auto* const kernels = fused_kernels_for(input);
    const auto type = *element_of(input.scalar_type());
    void* const stream = computing_stream(input.device());
    for (std::int64_t first = 0; first < input.size(0); first += rows) {
      const std::int64_t here = std::min(rows, input.size(0) - first);
      const at::Tensor of_rows = input.narrow(0, first, here);
      at::Tensor piece = logits.narrow(0, 0, here);
      at::mm_out(piece, of_rows, padded.t());
      const kernels::TokenRows size{static_cast<std::size_t>(here), static_cast<std::size_t>(count),
                                    static_cast<std::size_t>(padded.size(0))};
      kernels->token_loss_with_gradient(losses.data_ptr<float>() + first, piece.data_ptr(), type,
                                        targets.const_data_ptr<std::int64_t>() + first, size, stream);
      at::Tensor of_rows_gradient = of_input.narrow(0, first, here);
      at::mm_out(of_rows_gradient, piece, padded);
      full_product(of_words, piece.t(), of_rows, first > 0);
    }
    context->save_for_backward({of_input, of_words.narrow(0, 0, count)});
    context->saved_data["type"] = value.scalar_type();
    context->saved_data["parameter"] = reinterpret_cast<std::int64_t>(parameter);
    return losses.sum();
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor factor = gradients[0].to(at::kFloat);
    tensor_list results(6);
    results[0] = saved[0] * factor.to(saved[0].scalar_type());
    const auto* const parameter =
        reinterpret_cast<const Parameter*>(context->saved_data["parameter"].toInt());
    if (parameter != nullptr) {
      results[1] = parameter->take_gradient_memory();
      at::mul_out(results[1], saved[1], factor);
    } else {
      results[1] = (saved[1] * factor).to(context->saved_data["type"].toScalarType());
    }
    return results;
  }
};

}  // namespace

std::int64_t rows_at_once(std::int64_t columns, std::int64_t element_bytes, std::int64_t bytes) {
  const std::int64_t rows = std::max<std::int64_t>(1, bytes / (columns * element_bytes));
  return rows > kTile ? rows / kTile * kTile : rows;
}

std::int64_t rows_of_piece(std::int64_t rows, std::int64_t most) {
  const std::int64_t pieces = std::max<std::int64_t>(1, (rows + most - 1) / most);
  const std::int64_t even = (rows + pieces - 1) / pieces;
  return std::clamp<std::int64_t>((even + kTile - 1) / kTile * kTile, 1, most);
}

at::Tensor chunked_token_loss(const at::Tensor& input, const OutputWords& words, const at::Tensor& targets,
                              std::int64_t rows) {
  return ChunkedTokenLoss::apply(input, words.value, words.factor.detach(), targets, rows, words.parameter);
}

}  // namespace dtrain::models
