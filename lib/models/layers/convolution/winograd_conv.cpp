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

#include "kernels/convolution/transpose.hpp"
#include "kernels/convolution/winograd.hpp"
#include "kernels/products.hpp"
#include "kernels/small_gemm.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/step_memory.hpp"

namespace dtrain::models {
namespace {

// Of a block: as many tiles as channels, for the weights' planes pass by once per block. Large enough for the
// products, small enough for the caches.
constexpr std::int64_t kFewestTiles = 64;
constexpr std::int64_t kMostTiles = 256;
constexpr std::int64_t kMostOwn = 256;  // channels up to which products are our own
constexpr std::int64_t kFewest = 32;    // channels; below, the transforms cost more than they spare
constexpr std::int64_t kTileGrain = 4;  // tiles worth a thread

/// Matrices [rows, columns] in one piece of memory, as the kernels lay them out for tiles of `outputs` x
/// `outputs` pixels.
class Planes {
 public:
  Planes(std::int64_t rows, std::int64_t columns, std::size_t outputs, const at::TensorOptions& options)
      : Planes(rows, columns, outputs, at::empty({elements(rows, columns, outputs)}, options)) {}
  /// In memory that another one has left: memory().
  Planes(std::int64_t rows, std::int64_t columns, std::size_t outputs, at::Tensor memory)
      : memory_(std::move(memory)) {
    const auto plane = plane_of(rows, columns);
    for (std::size_t i = 0; i < kernels::winograd_planes(outputs); ++i) {
      const auto begin = memory_.storage_offset() + plane * static_cast<std::int64_t>(i);
      matrices_.push_back(memory_.as_strided({rows, columns}, {columns, 1}, begin));
    }
  }
  static std::int64_t elements(std::int64_t rows, std::int64_t columns, std::size_t outputs) {
    return plane_of(rows, columns) * static_cast<std::int64_t>(kernels::winograd_planes(outputs));
  }
  std::size_t count() const { return matrices_.size(); }
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
  static std::int64_t plane_of(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::int64_t>(
        kernels::winograd_plane(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)));
  }

  at::Tensor memory_;
  std::vector<at::Tensor> matrices_;
};

kernels::WinogradImages size_of(const at::Tensor& images) {
  const auto extent = [&](std::int64_t dim) { return static_cast<std::size_t>(images.size(dim)); };
  return {extent(0), extent(2), extent(3), extent(1), kernels::winograd_outputs(extent(2), extent(3))};
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
  const auto most = std::clamp(static_cast<std::int64_t>(size.channels), kFewestTiles, kMostTiles);
  const auto images = std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, per_image(size)));
  const auto wanted = per_image(size) > most ? most : images * per_image(size);
  return std::max<std::int64_t>(1, std::min(wanted, static_cast<std::int64_t>(size.tiles())));
}

kernels::WinogradWeights extents_of(const at::Tensor& weight, std::size_t outputs) {
  return {static_cast<std::size_t>(weight.size(0)), static_cast<std::size_t>(weight.size(1)), outputs};
}

/// Which gradients are wanted, or have been found.
struct Wanted {
  bool input = true;
  bool weight = true;
};
struct WinogradGradients {
  at::Tensor input, weight;
};

/// Whether the products are made by the kernels for small matrices, faster where a plane of weights fits the
/// second-level cache beside the tiles; their rows must be whole vectors.
bool multiplies_itself(const at::Tensor& weight) {
  const auto vector = static_cast<std::int64_t>(kernels::product_vector_bytes() / weight.element_size());
  return kernels::has_small_gemm() && std::max(weight.size(0), weight.size(1)) <= kMostOwn &&
         weight.size(0) % vector == 0 && weight.size(1) % vector == 0;
}

/// Weights in transformed form: [out, in] per plane and, for products of our own, also [in, out].
struct TransformedWeight {
  Planes back;
  std::optional<Planes> forward;
};

/// Made once for all micro-batches of a step, whose images are of one size unless the model uses the weight
/// for several.
template <class T>
TransformedWeight transformed(const Parameter& parameter, std::size_t outputs) {
  const at::Tensor weight = parameter.value.detach();
  const at::Tensor dense = weight.contiguous(kChannelsLast);
  const auto out = weight.size(0);
  const auto in = weight.size(1);
  const bool own = multiplies_itself(weight);
  const auto elements = Planes::elements(out, in, outputs);
  StepMemory* step = parameter.step_memory();
  const bool kept =
      step != nullptr && step->transformed.defined() && step->transformed.numel() == (own ? 2 : 1) * elements;
  const at::Tensor memory = kept ? step->transformed : at::empty({(own ? 2 : 1) * elements}, dense.options());
  TransformedWeight u{Planes(out, in, outputs, memory.narrow(0, 0, elements)), std::nullopt};
  if (own) u.forward.emplace(in, out, outputs, memory.narrow(0, elements, elements));
  if (kept) return u;
  if (step != nullptr) step->transformed = memory;
  kernels::winograd_weight(u.back.data<T>(), dense.const_data_ptr<T>(), extents_of(weight, outputs));
  for (std::size_t i = 0; own && i < u.back.count(); ++i) {
    kernels::transpose(u.forward->matrix(i).data_ptr<T>(), u.back.matrix(i).const_data_ptr<T>(),
                       static_cast<std::size_t>(out), static_cast<std::size_t>(in));
  }
  return u;
}

/// The products of all planes over a block's tiles.
template <class T>
class Products {
 public:
  Products(const TransformedWeight& u, std::int64_t tiles)
      : u_(u), tiles_(static_cast<std::size_t>(tiles)), rows_(tiles) {}

  /// m = v u^T
  void forward(const Planes& m, const Planes& v) const {
    over_planes([&](std::size_t i) {
      at::Tensor product = m.matrix(i, rows_);
      if (!u_.forward) {
        at::mm_out(product, v.matrix(i, rows_), u_.back.matrix(i).t());
        return;
      }
      kernels::multiply(product.data_ptr<T>(), data(v, i), in(), 1, data(*u_.forward, i),
                        {.rows = tiles_, .columns = out(), .depth = in()});
    });
  }

  /// du (+)= dm^T v, and then dv = dm u in the place of v, each where it is wanted.
  void backward(const Planes& dm, const Planes& v, const Planes& du, const Wanted& wanted, bool first) const {
    over_planes([&](std::size_t i) {
      if (wanted.weight) add_weight_gradient(du.matrix(i), dm, v, i, first);
      if (!wanted.input) return;
      at::Tensor product = v.matrix(i, rows_);  // used up
      if (!u_.forward) {
        at::mm_out(product, dm.matrix(i, rows_), u_.back.matrix(i));
        return;
      }
      kernels::multiply(product.data_ptr<T>(), data(dm, i), out(), 1, data(u_.back, i),
                        {.rows = tiles_, .columns = in(), .depth = out()});
    });
  }

 private:
  void add_weight_gradient(at::Tensor sum, const Planes& dm, const Planes& v, std::size_t i,
                           bool first) const {
    if (!u_.forward) {
      const at::Tensor left = dm.matrix(i, rows_).t();
      const at::Tensor right = v.matrix(i, rows_);
      first ? at::mm_out(sum, left, right) : at::addmm_out(sum, sum, left, right);
      return;
    }
    const kernels::GemmSize size{.rows = out(), .columns = in(), .depth = tiles_};
    const auto multiply = first ? kernels::multiply<T> : kernels::multiply_onto<T>;
    multiply(sum.data_ptr<T>(), data(dm, i), 1, out(), data(v, i), size);
  }

  /// A library's products have threads of their own.
  template <class Call>
  void over_planes(const Call& call) const {
    const auto planes = static_cast<std::int64_t>(u_.back.count());
    const auto some = [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i) call(static_cast<std::size_t>(i));
    };
    u_.forward ? at::parallel_for(0, planes, 1, some) : some(0, planes);
  }

  static const T* data(const Planes& planes, std::size_t i) { return planes.matrix(i).const_data_ptr<T>(); }
  std::size_t out() const { return static_cast<std::size_t>(u_.back.matrix(0).size(0)); }
  std::size_t in() const { return static_cast<std::size_t>(u_.back.matrix(0).size(1)); }

  const TransformedWeight& u_;
  std::size_t tiles_;
  std::int64_t rows_;
};

template <class T>
at::Tensor forward_as(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const TransformedWeight& u) {
  const auto options = x.options();
  at::Tensor y =
      at::empty({x.size(0), weight.size(0), x.size(2), x.size(3)}, options.memory_format(kChannelsLast));
  const auto inputs = size_of(x);
  const auto outputs = size_of(y);
  const auto capacity = block_capacity(inputs);
  const Planes v(capacity, x.size(1), inputs.outputs, options);
  const Planes m(capacity, weight.size(0), inputs.outputs, options);
  const T* shift = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
  over_blocks(inputs, capacity, [&](const TileBlock& block) {
    block.over_tiles(kTileGrain, [&](const kernels::TileRange& tiles) {
      kernels::winograd_input(v.data<T>(), x.const_data_ptr<T>(), inputs, tiles);
    });
    Products<T>(u, block.tiles()).forward(m, v);
    block.over_tiles(kTileGrain, [&](const kernels::TileRange& tiles) {
      kernels::winograd_output(y.data_ptr<T>(), m.data<T>(), shift, outputs, tiles);
    });
  });
  return y;
}

template <class T>
WinogradGradients backward_as(const at::Tensor& dy, const at::Tensor& x, Parameter& weight,
                              const TransformedWeight& u, Wanted wanted) {
  const auto options = x.options();
  const auto inputs = size_of(x);
  const auto outputs = size_of(dy);
  const auto capacity = block_capacity(inputs);
  const Planes v(capacity, x.size(1), inputs.outputs, options);
  const Planes dm(capacity, dy.size(1), inputs.outputs, options);
  const Planes du(dy.size(1), x.size(1), inputs.outputs, options);
  WinogradGradients found;
  if (wanted.input) found.input = at::empty(x.sizes(), options.memory_format(kChannelsLast));
  const bool whole_images = capacity % per_image(inputs) == 0;
  if (wanted.input && !whole_images) found.input.zero_();
  over_blocks(inputs, capacity, [&](const TileBlock& block) {
    block.over_tiles(kTileGrain, [&](const kernels::TileRange& tiles) {
      if (wanted.weight) kernels::winograd_input(v.data<T>(), x.const_data_ptr<T>(), inputs, tiles);
      kernels::winograd_output_gradient(dm.data<T>(), dy.const_data_ptr<T>(), outputs, tiles);
    });
    Products<T>(u, block.tiles()).backward(dm, v, du, wanted, block.begin == 0);
    if (!wanted.input) return;
    // Tiles of one image share pixels; where a block is a part of an image one thread takes it.
    const auto grain = whole_images ? per_image(inputs) : block.tiles();
    if (whole_images) found.input.narrow(0, block.begin / grain, block.tiles() / grain).zero_();
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
                                      extents_of(weight.value, inputs.outputs));
  }
  return found;
}

/// What the node keeps of its layer besides the saved tensors.
struct KeptOfWinograd : torch::CustomClassHolder {
  Parameter* weight = nullptr;
  TransformedWeight transformed;
  KeptOfWinograd(Parameter* of, TransformedWeight planes) : weight(of), transformed(std::move(planes)) {}
};

class WinogradConv : public torch::autograd::Function<WinogradConv> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& given,
                            Parameter* parameter) {
    const at::Tensor bias = given.value_or(at::Tensor());
    const bool doubles = input.scalar_type() == at::kDouble;
    const auto tile = size_of(input).outputs;
    auto kept = c10::make_intrusive<KeptOfWinograd>(
        parameter, doubles ? transformed<double>(*parameter, tile) : transformed<float>(*parameter, tile));
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
  return winograd_bytes(weight, geometry, input.size(2), input.size(3)) > 0.0 &&
         own_products_take(input, weight);
}

double winograd_share(std::int64_t height, std::int64_t width) {
  const auto side = static_cast<std::int64_t>(
      kernels::winograd_outputs(static_cast<std::size_t>(height), static_cast<std::size_t>(width)));
  const auto tiles = ((height + side - 1) / side) * ((width + side - 1) / side);
  const auto planes = kernels::winograd_planes(static_cast<std::size_t>(side));
  constexpr double kWindow = 9;
  return static_cast<double>(tiles) * static_cast<double>(planes) /
         (kWindow * static_cast<double>(height * width));
}

double winograd_weight_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry, std::int64_t height,
                             std::int64_t width) {
  const auto type = weight.scalar_type();
  const auto channels = static_cast<std::int64_t>(kernels::kWinogradChannels);
  const bool fits = geometry.kernel == 3 && geometry.stride == 1 && geometry.padding == 1 &&
                    std::min(weight.size(0), weight.size(1)) >= kFewest && weight.size(0) % channels == 0 &&
                    weight.size(1) % channels == 0 && (type == at::kFloat || type == at::kDouble) &&
                    weight.is_contiguous(kChannelsLast);
  const auto planes = static_cast<double>(kernels::winograd_planes(
      kernels::winograd_outputs(static_cast<std::size_t>(height), static_cast<std::size_t>(width))));
  return fits ? planes * static_cast<double>(weight.size(0) * weight.size(1) * weight.element_size()) : 0.0;
}

double winograd_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry, std::int64_t height,
                      std::int64_t width) {
  return winograd_weight_bytes(weight, geometry, height, width) * (multiplies_itself(weight) ? 2.0 : 1.0);
}

double winograd_workspace_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry,
                                const Shape& input) {
  const double of_weight = winograd_weight_bytes(weight, geometry, input.at(2), input.at(3));
  if (of_weight == 0.0) return 0.0;
  const auto extent = [&](std::size_t dim) { return static_cast<std::size_t>(input.at(dim)); };
  const kernels::WinogradImages size{extent(0), extent(2), extent(3), extent(1),
                                     kernels::winograd_outputs(extent(2), extent(3))};
  const auto planes = static_cast<double>(kernels::winograd_planes(size.outputs));
  const auto channels = static_cast<double>(weight.size(0) + weight.size(1));
  return of_weight + static_cast<double>(block_capacity(size)) * channels * planes *
                         static_cast<double>(weight.element_size());
}

at::Tensor winograd_conv(const at::Tensor& input, Parameter& weight, Parameter* bias) {
  return WinogradConv::apply(input.contiguous(kChannelsLast), weight.value,
                             bias != nullptr ? std::optional(bias->value) : std::nullopt, &weight);
}

}  // namespace dtrain::models
