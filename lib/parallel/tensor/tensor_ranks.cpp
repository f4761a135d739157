#include "parallel/tensor/tensor_ranks.hpp"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

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

class Gather : public torch::autograd::Function<Gather> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& share,
                            std::int64_t tokens, TensorRanks* ranks) {
    context->saved_data["ranks"] = reinterpret_cast<std::int64_t>(ranks);
    return ranks->joined(share, tokens);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    TensorRanks& ranks = ranks_of(context);
    const at::Tensor& whole = gradients[0];
    return {ranks.summed_share(whole), at::Tensor(), at::Tensor()};
  }
};

/// at::linear on all tokens, [n, T, in] -> [n, T, out]. While the weight's gradient is computed, that of the
/// inputs is summed.
class GatherLinear : public torch::autograd::Function<GatherLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& share,
                            std::int64_t tokens, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, TensorRanks* ranks) {
    context->saved_data["ranks"] = reinterpret_cast<std::int64_t>(ranks);
    context->saved_data["has_bias"] = bias.has_value();
    const at::Tensor whole = ranks->joined(share, tokens);
    context->save_for_backward({whole, weight});
    return at::linear(whole, weight, bias);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    TensorRanks& ranks = ranks_of(context);
    const auto saved = context->get_saved_variables();
    const at::Tensor rows = gradients[0].reshape({-1, gradients[0].size(-1)});
    const at::Tensor of_whole = rows.mm(saved[1]).view_as(saved[0]);
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const auto sum = ranks.summing_share(of_whole);
    const at::Tensor of_weight = rows.t().mm(saved[0].flatten(0, 1));
    const at::Tensor of_bias = has_bias ? rows.sum(0) : at::Tensor();
    return {sum.wait(), {}, of_weight, of_bias, {}};
  }
};

class Scatter : public torch::autograd::Function<Scatter> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& partial,
                            TensorRanks* ranks) {
    context->saved_data["ranks"] = reinterpret_cast<std::int64_t>(ranks);
    context->saved_data["tokens"] = partial.size(1);
    return ranks->summed_share(partial);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    return {ranks_of(context).joined(gradients[0], context->saved_data["tokens"].toInt()), at::Tensor()};
  }
};

/// Shape of a rank's block of tokens, filled up where the last ranks' are shorter: [n, block, ...].
models::Shape block_shape(const at::Tensor& x, std::int64_t tokens, int ranks) {
  models::Shape shape = x.sizes().vec();
  shape[1] = models::share_of_tokens(tokens, 0, ranks).size();
  return shape;
}

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

at::Tensor TensorRanks::gather(const at::Tensor& share, std::int64_t tokens) {
  return Gather::apply(share, tokens, this);
}

at::Tensor TensorRanks::gather_linear(const at::Tensor& share, std::int64_t tokens, const at::Tensor& weight,
                                      const at::Tensor& bias) {
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  return GatherLinear::apply(share, tokens, weight, given, this);
}

at::Tensor TensorRanks::scatter(const at::Tensor& partial) { return Scatter::apply(partial, this); }

at::Tensor TensorRanks::joined(const at::Tensor& share, std::int64_t tokens) {
  models::Shape shape = share.sizes().vec();
  shape[1] = tokens;
  at::Tensor whole = at::empty(shape, share.options());
  if (whole.numel() == 0) return whole;
  const models::Shape block = block_shape(share, tokens, size());
  models::Shape all = block;
  all.insert(all.begin(), size());
  const auto [group, place] = carrier_of(group_, share.device());
  const at::Tensor blocks = at::empty(all, share.options().device(place));
  const at::Tensor own = room_for(block, blocks.options());
  own.narrow(1, 0, share.size(1)).copy_(share);
  group.all_gather(buffer_of(own), buffer_of(blocks)).follow();
  for (int rank = 0; rank < size(); ++rank) {
    const Range part = models::share_of_tokens(tokens, rank, size());
    whole.narrow(1, part.begin, part.size()).copy_(blocks[rank].narrow(1, 0, part.size()));
  }
  bytes_summed_ += whole.nbytes() / 2;
  return whole;
}

TensorRanks::SharedSum TensorRanks::summing_share(const at::Tensor& partial) {
  const auto tokens = partial.size(1);
  const models::Shape block = block_shape(partial, tokens, size());
  SharedSum summing;
  summing.device_ = partial.device();
  const auto [group, place] = carrier_of(group_, partial.device());
  summing.sum_ = at::empty(block, partial.options().device(place));
  summing.own_ = models::share_of_tokens(tokens, rank(), size()).size();
  if (partial.numel() == 0) return summing;
  models::Shape all = block;
  all.insert(all.begin(), size());
  summing.blocks_ = room_for(all, summing.sum_.options());
  for (int rank = 0; rank < size(); ++rank) {
    const Range part = models::share_of_tokens(tokens, rank, size());
    summing.blocks_[rank].narrow(1, 0, part.size()).copy_(partial.narrow(1, part.begin, part.size()));
  }
  summing.handle_ =
      group.reduce_scatter(buffer_of(summing.blocks_), buffer_of(summing.sum_), comm::ReduceOp::sum);
  bytes_summed_ += partial.nbytes() / 2;
  return summing;
}

at::Tensor TensorRanks::SharedSum::wait() const {
  handle_.follow();
  return sum_.narrow(1, 0, own_).contiguous().to(device_);
}

/// Dense memory for what goes into a sum: on the CPU what the ranks of a node can read.
at::Tensor TensorRanks::room_for(at::IntArrayRef sizes, at::IntArrayRef strides,
                                 const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return at::empty_strided(sizes, strides, options);
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (memory_ == nullptr || memory_->bytes() < bytes) {
    memory_.reset();
    memory_ = group_.allocate(bytes);
  }
  return at::from_blob(memory_->data(), sizes, strides, options);
}

at::Tensor TensorRanks::room_for(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return room_for(sizes, c10::contiguous_strides(sizes), options);
}

void TensorRanks::reduce(at::Tensor& values, comm::ReduceOp op) {
  const auto bytes = values.nbytes();
  if (bytes == 0) return;
  const auto [group, place] = carrier_of(group_, values.device());
  const auto options = values.options().device(place);
  const bool dense = values.is_non_overlapping_and_dense();
  const bool in_place = dense && !options.device().is_cpu();
  const at::Tensor exchanged = in_place ? values.detach()
                               : dense  ? room_for(values.sizes(), values.strides(), options)
                                        : room_for(values.sizes(), options);
  if (!in_place) exchanged.copy_(values.detach());
  group.all_reduce(buffer_of(exchanged), op).follow();
  if (!in_place) values.detach().copy_(exchanged);
  bytes_summed_ += bytes;
}

double bytes_of_sums(const models::Model& model, std::vector<models::Shape> inputs) {
  double bytes = 0;
  bool differentiated = false;  // the model's own inputs get no gradient
  for (const auto& layer : model.layers()) {
    const auto cost = layer->cost(inputs);
    bytes += cost.left_bytes + (differentiated ? cost.entered_bytes : 0.0);
    differentiated = differentiated || !layer->parameters().empty();
    inputs = layer->output_shapes(inputs);
  }
  return bytes;
}

}  // namespace dtrain::parallel
