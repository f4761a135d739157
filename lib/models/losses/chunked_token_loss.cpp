#include "models/losses/chunked_token_loss.hpp"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"

namespace dtrain::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

class ChunkedTokenLoss : public torch::autograd::Function<ChunkedTokenLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& words,
                            const at::Tensor& targets, std::int64_t rows) {
    const std::int64_t count = words.size(0);
    const at::Tensor padded = padded_columns(count) == count
                                  ? words
                                  : at::constant_pad_nd(words, {0, 0, 0, padded_columns(count) - count});
    const auto full = input.options().dtype(at::kFloat).requires_grad(false);
    const at::Tensor losses = at::empty({input.size(0)}, full);
    const at::Tensor log_sums = at::empty({std::min(rows, input.size(0))}, full);
    const at::Tensor one = at::ones({}, full);
    const at::Tensor of_input = at::empty_like(input);
    at::Tensor of_words = at::zeros(padded.sizes(), full);
    at::Tensor logits = at::empty({log_sums.size(0), padded.size(0)}, input.options().requires_grad(false));
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
      const auto* const wanted = targets.const_data_ptr<std::int64_t>() + first;
      kernels->token_loss(losses.data_ptr<float>() + first, log_sums.data_ptr<float>(),
                          piece.const_data_ptr(), type, wanted, size, stream);
      kernels->token_loss_gradient(piece.data_ptr(), type, log_sums.const_data_ptr<float>(), wanted,
                                   one.const_data_ptr<float>(), size, stream);
      at::Tensor of_rows_gradient = of_input.narrow(0, first, here);
      at::mm_out(of_rows_gradient, piece, padded);
      if (input.scalar_type() == at::kFloat) {
        of_words.addmm_(piece.t(), of_rows);
      } else {
        of_words.add_(at::mm(piece.t(), of_rows));
      }
    }
    context->save_for_backward({of_input, of_words.narrow(0, 0, count)});
    context->saved_data["type"] = words.scalar_type();
    return losses.sum();
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor factor = gradients[0].to(at::kFloat);
    return {saved[0] * factor.to(saved[0].scalar_type()),
            (saved[1] * factor).to(context->saved_data["type"].toScalarType()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::int64_t rows_at_once(std::int64_t columns, std::int64_t element_bytes, std::int64_t bytes) {
  constexpr std::int64_t kWhole = 128;  // a GPU's products come in tiles of so many rows
  const std::int64_t rows = std::max<std::int64_t>(1, bytes / (columns * element_bytes));
  return rows > kWhole ? rows / kWhole * kWhole : rows;
}

at::Tensor chunked_token_loss(const at::Tensor& input, const at::Tensor& words, const at::Tensor& targets,
                              std::int64_t rows) {
  return ChunkedTokenLoss::apply(input, words, targets, rows);
}

}  // namespace dtrain::models
