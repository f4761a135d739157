#include "models/layers/convolution/winograd_conv.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/convolution/winograd.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/step_memory.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kTilesAtOnce = 256;  // large enough for the products, small enough for the caches
constexpr std::int64_t kFewest = 32;        // channels; below, the transforms cost more than they spare
constexpr std::int64_t kTileGrain = 16;     // tiles worth a thread

/// Sixteen matrices [rows, columns] in one piece of memory, as the kernels lay them out.
class Planes {
 public:
  Planes(std::int64_t rows, std::int64_t columns, const at::TensorOptions& options)
      : Planes(rows, columns, at::empty({plane_of(rows, columns) * kPlanes}, options)) {}
  /// In memory that another one has left: memory().
  Planes(std::int64_t rows, std::int64_t columns, at::Tensor memory) : memory_(std::move(memory)) {
    const auto plane = plane_of(rows, columns);
    for (std::size_t i = 0; i < kernels::kWinogradPlanes; ++i) {
      matrices_.push_back(
          memory_.as_strided({rows, columns}, {columns, 1}, plane * static_cast<std::int64_t>(i)));
    }
  }
  template <class T>
  T* data() const {
    return memory_.data_ptr<T>();
  }
  /// Matrix `i`, of its first `rows` rows.
  at::Tensor matrix(std::size_t i, std::int64_t rows) const {
    return rows == matrices_[i].size(0) ? matrices_[i] : matrices_[i].narrow(0, 0, rows);
  }
  const at::Tensor& matrix(std::size_t i) const { return matrices_[i]; }
  const at::Tensor& memory() const { return memory_; }

 private:
  static constexpr auto kPlanes = static_cast<std::int64_t>(kernels::kWinogradPlanes);
  static std::int64_t plane_of(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::int64_t>(
        kernels::winograd_plane(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)));
  }

  at::Tensor memory_;
  std::vector<at::Tensor> matrices_;
};

kernels::WinogradImages size_of(const at::Tensor& images) {
  const auto extent = [&](std::int64_t dim) { return static_cast<std::size_t>(images.size(dim)); };
  return {extent(0), extent(2), extent(3), extent(1)};
}

/// A block of consecutive tiles, and calls for parts of it on all threads.
struct TileBlock {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t capacity = 0;
  std::int64_t tiles() const { return end - begin; }

  template <class Call>
  void over_tiles(std::int64_t grain, const Call& call) const {
    const auto whole = (end - begin + grain - 1) / grain;
    at::parallel_for(0, whole, 1, [&](std::int64_t first, std::int64_t last) {
      const auto from = begin + first * grain;
      const auto to = std::min(end, begin + last * grain);
      call(kernels::TileRange{static_cast<std::size_t>(from), static_cast<std::size_t>(to),
                              static_cast<std::size_t>(begin), static_cast<std::size_t>(capacity)});
    });
  }
};

/// Calls `work(block)` for all tiles, `capacity` at a time.
template <class Work>
void over_blocks(const kernels::WinogradImages& size, std::int64_t capacity, const Work& work) {
  const auto tiles = static_cast<std::int64_t>(size.tiles());
  for (std::int64_t begin = 0; begin < tiles; begin += capacity) {
    work(TileBlock{begin, std::min(begin + capacity, tiles), capacity});
  }
}

std::int64_t per_image(const kernels::WinogradImages& size) {
  return static_cast<std::int64_t>(size.tile_rows() * size.tile_columns());
}

/// Whole images, unless one is more than a block.
std::int64_t block_capacity(const kernels::WinogradImages& size) {
  const auto images = std::max<std::int64_t>(1, kTilesAtOnce / std::max<std::int64_t>(1, per_image(size)));
  const auto wanted = per_image(size) > kTilesAtOnce ? kTilesAtOnce : images * per_image(size);
  return std::max<std::int64_t>(1, std::min(wanted, static_cast<std::int64_t>(size.tiles())));
}

/// Weights in transformed form: [out, in] per plane. Made once for all micro-batches of a step.
template <class T>
Planes transformed(const Parameter& parameter) {
  const at::Tensor weight = parameter.value.detach();
  const at::Tensor dense = weight.contiguous(kChannelsLast);
  StepMemory* step = parameter.step_memory();
  if (step != nullptr && step->transformed.defined()) {
    return {weight.size(0), weight.size(1), step->transformed};
  }
  Planes u(weight.size(0), weight.size(1), dense.options());
  if (step != nullptr) step->transformed = u.memory();
  kernels::winograd_weight(u.data<T>(), dense.const_data_ptr<T>(), static_cast<std::size_t>(weight.size(0)),
                           static_cast<std::size_t>(weight.size(1)));
  return u;
}

template <class T>
at::Tensor forward_as(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const Planes& u) {
  const auto options = x.options();
  at::Tensor y =
      at::empty({x.size(0), weight.size(0), x.size(2), x.size(3)}, options.memory_format(kChannelsLast));
  const auto inputs = size_of(x);
  const auto outputs = size_of(y);
  const auto capacity = block_capacity(inputs);
  const Planes v(capacity, x.size(1), options);
  const Planes m(capacity, weight.size(0), options);
  const T* shift = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
  over_blocks(inputs, capacity, [&](const TileBlock& block) {
    block.over_tiles(kTileGrain, [&](const kernels::TileRange& tiles) {
      kernels::winograd_input(v.data<T>(), x.const_data_ptr<T>(), inputs, tiles);
    });
    for (std::size_t i = 0; i < kernels::kWinogradPlanes; ++i) {
      at::Tensor product = m.matrix(i, block.tiles());
      at::mm_out(product, v.matrix(i, block.tiles()), u.matrix(i).t());
    }
    block.over_tiles(kTileGrain, [&](const kernels::TileRange& tiles) {
      kernels::winograd_output(y.data_ptr<T>(), m.data<T>(), shift, outputs, tiles);
    });
  });
  return y;
}

/// Which gradients are wanted, or have been found.
struct Wanted {
  bool input = true;
  bool weight = true;
};
struct WinogradGradients {
  at::Tensor input, weight;
};

template <class T>
WinogradGradients backward_as(const at::Tensor& dy, const at::Tensor& x, Parameter& weight, const Planes& u,
                              Wanted wanted) {
  const auto options = x.options();
  const auto inputs = size_of(x);
  const auto outputs = size_of(dy);
  const auto capacity = block_capacity(inputs);
  const Planes v(capacity, x.size(1), options);
  const Planes dm(capacity, dy.size(1), options);
  const Planes du(dy.size(1), x.size(1), options);
  WinogradGradients found;
  if (wanted.input) found.input = at::empty(x.sizes(), options.memory_format(kChannelsLast)).zero_();
  over_blocks(inputs, capacity, [&](const TileBlock& block) {
    block.over_tiles(kTileGrain, [&](const kernels::TileRange& tiles) {
      if (wanted.weight) kernels::winograd_input(v.data<T>(), x.const_data_ptr<T>(), inputs, tiles);
      kernels::winograd_output_gradient(dm.data<T>(), dy.const_data_ptr<T>(), outputs, tiles);
    });
    for (std::size_t i = 0; i < kernels::kWinogradPlanes; ++i) {
      at::Tensor sum = du.matrix(i);
      const at::Tensor rows = v.matrix(i, block.tiles());
      const at::Tensor gradient = dm.matrix(i, block.tiles());
      if (wanted.weight && block.begin == 0) {
        at::mm_out(sum, gradient.t(), rows);
      } else if (wanted.weight) {
        at::addmm_out(sum, sum, gradient.t(), rows);
      }
      // The tiles are used up: their gradient takes their place.
      at::Tensor product = rows;
      if (wanted.input) at::mm_out(product, gradient, u.matrix(i));
    }
    if (!wanted.input) return;
    // Tiles of one image share pixels; where a block is a part of an image one thread takes it.
    const auto grain = block.tiles() % per_image(inputs) == 0 ? per_image(inputs) : block.tiles();
    block.over_tiles(grain, [&](const kernels::TileRange& tiles) {
      kernels::winograd_input_gradient(found.input.data_ptr<T>(), v.data<T>(), inputs, tiles);
    });
  });
  if (!wanted.weight) return found;
  found.weight = weight.take_gradient_memory(kChannelsLast);
  if (x.size(0) == 0) {
    found.weight.zero_();
  } else {
    kernels::winograd_weight_gradient(found.weight.data_ptr<T>(), du.data<T>(),
                                      static_cast<std::size_t>(dy.size(1)),
                                      static_cast<std::size_t>(x.size(1)));
  }
  return found;
}

/// What the node keeps of its layer besides the saved tensors.
struct KeptOfWinograd : torch::CustomClassHolder {
  Parameter* weight = nullptr;
  Planes transformed;
  KeptOfWinograd(Parameter* of, Planes planes) : weight(of), transformed(std::move(planes)) {}
};

class WinogradConv : public torch::autograd::Function<WinogradConv> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& given,
                            Parameter* parameter) {
    const at::Tensor bias = given.value_or(at::Tensor());
    const bool doubles = input.scalar_type() == at::kDouble;
    auto kept = c10::make_intrusive<KeptOfWinograd>(
        parameter, doubles ? transformed<double>(*parameter) : transformed<float>(*parameter));
    const at::Tensor y = doubles ? forward_as<double>(input, weight, bias, kept->transformed)
                                 : forward_as<float>(input, weight, bias, kept->transformed);
    context->save_for_backward({input});
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    context->saved_data["bias"] = bias.defined();
    return y;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor dy = gradients[0].contiguous(kChannelsLast);
    const at::Tensor x = context->get_saved_variables()[0];
    const auto capsule = context->saved_data["kept"].toCapsule();
    auto& kept = static_cast<KeptOfWinograd&>(*capsule);
    StepMemory* step = kept.weight->step_memory();
    const bool later =
        step != nullptr && step->holds_back(x.numel() + dy.numel(), kept.weight->value.numel());
    auto found = gradients_of(dy, x, kept, {.input = context->needs_input_grad(0), .weight = !later});
    if (later && step->add(x, dy)) {
      found.weight =
          gradients_of(step->output_gradients(), step->inputs(), kept, {.input = false, .weight = true})
              .weight;
    }
    const at::Tensor bias = context->saved_data["bias"].toBool() ? dy.sum({0, 2, 3}) : at::Tensor();
    return {found.input, found.weight, bias, at::Tensor()};
  }

 private:
  static WinogradGradients gradients_of(const at::Tensor& dy, const at::Tensor& x, KeptOfWinograd& kept,
                                        Wanted wanted) {
    return dy.scalar_type() == at::kDouble
               ? backward_as<double>(dy, x, *kept.weight, kept.transformed, wanted)
               : backward_as<float>(dy, x, *kept.weight, kept.transformed, wanted);
  }
};

}  // namespace

bool fits_winograd(const at::Tensor& input, const at::Tensor& weight, const Conv2d::Geometry& geometry) {
  return winograd_bytes(weight, geometry) > 0.0 && own_products_take(input, weight);
}

double winograd_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry) {
  const auto type = weight.scalar_type();
  const auto channels = static_cast<std::int64_t>(kernels::kWinogradChannels);
  const bool fits = geometry.kernel == 3 && geometry.stride == 1 && geometry.padding == 1 &&
                    std::min(weight.size(0), weight.size(1)) >= kFewest && weight.size(0) % channels == 0 &&
                    weight.size(1) % channels == 0 && (type == at::kFloat || type == at::kDouble) &&
                    weight.is_contiguous(kChannelsLast);
  const auto planes = static_cast<double>(kernels::kWinogradPlanes);
  return fits ? planes * static_cast<double>(weight.size(0) * weight.size(1) * weight.element_size()) : 0.0;
}

at::Tensor winograd_conv(const at::Tensor& input, Parameter& weight, Parameter* bias) {
  return WinogradConv::apply(input.contiguous(kChannelsLast), weight.value,
                             bias != nullptr ? std::optional(bias->value) : std::nullopt, &weight);
}

}  // namespace dtrain::models
