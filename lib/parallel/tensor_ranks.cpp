#include "parallel/tensor_ranks.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>

#include "core/planted_fault.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {
namespace {

TensorRanks& ranks_of(torch::autograd::AutogradContext* context) {
  return *reinterpret_cast<TensorRanks*>(context->saved_data["ranks"].toInt());
}

class Enter : public torch::autograd::Function<Enter> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            TensorRanks* ranks) {
    context->saved_data["ranks"] = reinterpret_cast<std::int64_t>(ranks);
    return x;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    if (planted(Fault::unsummed_slice)) return {gradients[0], at::Tensor()};
    return {ranks_of(context).summed(gradients[0]), at::Tensor()};
  }
};

class Leave : public torch::autograd::Function<Leave> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& partial,
                            TensorRanks* ranks) {
    return ranks->summed(partial);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                               const torch::autograd::tensor_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor TensorRanks::enter(const at::Tensor& x) { return Enter::apply(x, this); }

at::Tensor TensorRanks::leave(const at::Tensor& partial) { return Leave::apply(partial, this); }

at::Tensor TensorRanks::summed(const at::Tensor& values) {
  // Uneven slices may be computed by different kernels, whose outputs lie differently in memory.
  const auto format = values.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  at::Tensor sum = at::empty(values.sizes(), values.options().memory_format(format));
  sum.copy_(values);
  reduce(sum, comm::ReduceOp::sum);
  return sum;
}

void TensorRanks::reduce(at::Tensor& values, comm::ReduceOp op) {
  const auto bytes = values.nbytes();
  if (bytes == 0) return;
  if (memory_ == nullptr || memory_->bytes() < bytes) {
    memory_.reset();
    memory_ = group_.allocate(bytes);
  }
  std::memcpy(memory_->data(), values.data_ptr(), bytes);
  group_
      .all_reduce(
          {memory_->data(), static_cast<std::size_t>(values.numel()), data_type_of(values.scalar_type())}, op)
      .wait();
  std::memcpy(values.data_ptr(), memory_->data(), bytes);
  bytes_summed_ += bytes;
}

double bytes_of_sums(const models::Model& model, std::vector<models::Shape> inputs) {
  double bytes = 0;
  bool differentiated = false;  // nobody asks for the gradient of the model's own inputs
  for (const auto& layer : model.layers()) {
    const auto cost = layer->cost(inputs);
    bytes += cost.left_bytes + (differentiated ? cost.entered_bytes : 0.0);
    differentiated = differentiated || !layer->parameters().empty();
    inputs = layer->output_shapes(inputs);
  }
  return bytes;
}

}  // namespace dtrain::parallel
