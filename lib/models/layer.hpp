#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/slice.hpp"
#include "kernels/philox.hpp"
#include "models/compute/kernel_scope.hpp"

namespace dtrain::models {

/// What flows between two layers. Most layers take and give one tensor; a decoder also takes its target
/// words. It lies where the parameters do, but ids and targets lie on the CPU, whatever computes: there they
/// are looked at without waiting, and a layer that looks them up on a device takes them there.
using Tensors = std::vector<at::Tensor>;
using Shape = std::vector<std::int64_t>;

/// How images lie inside the models that convolve: [n, channels, height, width] with the channels innermost.
constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

enum class Mode { training, evaluation };

/// A forward pass may be repeated for backward instead of keeping what it needs; the repetition counts
/// nothing.
enum class Pass { first, repeated };

/// What a decoder reads as the word before: the target's word, its own, or in training either by chance
/// (teacher forcing).
enum class Feedback { by_chance, targets, own_words };

/// Which numbers decide what dropout drops.
struct MaskKey {
  kernels::RandomKey key;
  at::Tensor step = {};  ///< See Context::replayed_step.
};

/// All that a forward pass may depend on besides its inputs and parameters.
struct Context {
  Mode mode = Mode::training;
  Pass pass = Pass::first;
  std::uint64_t seed = 1;
  std::uint32_t step = 0;                   ///< Counts from 1.
  std::uint32_t micro_batch = 0;            ///< Index of the piece within the step.
  Feedback feedback = Feedback::by_chance;  ///< In evaluation by_chance means targets.
  std::optional<at::ScalarType> half = {};  ///< Mixed precision, see ProductScope: kBFloat16 or kHalf.
  Kernels kernels = Kernels::own;           ///< See KernelScope.
  /// What flows between two layers, and its gradient, lies in memory as though another rank had sent it: sums
  /// over it have the same bits on any number of ranks.
  bool as_sent = false;

  /// The next layer runs at once, in the same graph, and Layer::takes_pairs(): a layer whose output is a sum
  /// may hand on both terms, which the next one adds up in its own first pass over them.
  bool joins_next = false;

  /// Where the forward pass is captured, to be replayed in later steps: what `step` is then, int32 [1] on the
  /// device. Else undefined.
  at::Tensor replayed_step = {};

  /// The stream for a layer's dropout mask: no number depends on how many ranks there are.
  MaskKey dropout_key(std::uint32_t layer) const {
    return {{seed, kernels::Purpose::dropout, step, micro_batch, layer}, replayed_step};
  }
};

/// How a parameter starts: PyTorch's default of its layer, unless a recipe says otherwise.
struct Initialisation {
  enum class Kind { zero, one, uniform, normal, given };
  Kind kind = Kind::zero;
  double scale = 0.0;  ///< Half-width of the uniform distribution, standard deviation of the normal one.
  std::int64_t zero_rows = 0;  ///< So many first rows are zero instead: padding's.
  /// Of `given`: reads the whole tensor, of any type, on the CPU. Called where a part of it is held.
  std::function<at::Tensor()> values = {};
};

/// Which dim of a parameter may be cut over the tensor axis, and in what manner.
enum class Slicing { none, column, row, vocabulary, heads, channels_out, channels_in };

/// The part of a sliced parameter or buffer that this rank holds: elements `part` along `dim` of the whole
/// tensor seen in the shape `view` (a joint projection of queries, keys and values is [3, heads, ...]).
struct HeldSlice {
  Shape whole;  ///< The whole tensor's own shape.
  Shape view;
  std::int64_t dim = 0;
  Range part;
  /// Where the rest is: on the other ranks of the tensor group, or in another layer (Layer::cut_outputs()).
  enum class Rest { on_tensor_group, in_another_layer } rest = Rest::on_tensor_group;

  bool is_shared() const { return rest == Rest::on_tensor_group; }
};

/// What each rank of a tensor group has of what flows from one layer to the next: all of it, or a part of its
/// channels or features (dim 1).
struct Flow {
  std::int64_t whole = 0;  ///< Channels or features in all; 0: every rank has them all.
  Range part;
  bool sliced() const { return whole > 0; }
};

class BorrowedParameter;  // models/borrowed_parameter.hpp
class GradientPlace;      // models/compute/gradient_place.hpp
class StepMemory;         // models/compute/step_memory.hpp
struct ProductFactors;    // models/compute/product_factors.hpp
class TensorGroup;        // models/slicing/tensor_group.hpp

/// A trainable tensor. `value` is a leaf that requires gradients; parallel replaces its storage by a view
/// into flat memory, so keep the Parameter, not a copy of the tensor.
struct Parameter {
  std::string name;  ///< PyTorch's state_dict name.
  at::Tensor value;
  Initialisation init;
  Slicing slicing = Slicing::none;
  std::shared_ptr<const HeldSlice> slice = nullptr;  ///< Null: this rank holds the whole.
  at::Tensor half = {};      ///< A copy for products, where one is kept (HalfWeights); else undefined.
  bool frozen = false;       ///< Not trained: no gradient, no update, no place among the flat parameters.
  bool before_next = false;  ///< Lies in flat memory before the layer's next one, not behind it.
  bool by_rows = false;      ///< A step uses few rows, and the layer can give their gradient as RowGradients.

  /// Set by GradientPlace alone. Null: nothing collects the gradient but .grad.
  GradientPlace* place = nullptr;

  /// Memory for one gradient, laid out in `format`: what its place offers where it is laid out so, else
  /// memory of its own.
  at::Tensor take_gradient_memory(at::MemoryFormat format = at::MemoryFormat::Contiguous) const;
  /// Null: no step of several micro-batches runs.
  StepMemory* step_memory() const;
  /// Null: the gradient is wanted, not what it is made from.
  ProductFactors* factors() const;
};

/// State that is saved and agreed upon but not trained (BatchNorm's running statistics). It changes once per
/// step, alike on all ranks (parallel/step/step_statistics.hpp): a forward pass only adds to the step's sums.
struct Buffer {
  enum class Update {
    moving_mean,  ///< value += momentum (step_sum / step_weight - value), the sums being all ranks'.
    count_steps,  ///< value += 1.
    constant,     ///< It stays: a mask, or positions, that a module keeps in its state.
  };
  std::string name;
  at::Tensor value;
  Update update = Update::moving_mean;
  double momentum = 0.1;
  std::shared_ptr<const HeldSlice> slice = nullptr;  ///< Null: this rank holds the whole.
  /// double, [rows] + the value's shape: this rank's micro-batches, weighted by samples; in one row, or one
  /// row for each micro-batch of the step, where they are to be added up in one order.
  at::Tensor step_sum;
  double step_weight = 0;  ///< Samples in it.

  at::Tensor step_row(std::uint32_t micro_batch) const {
    return step_sum.select(0, step_sum.size(0) == 1 ? 0 : micro_batch);
  }
};

/// What one layer costs for a given input, forward only; backward costs twice that.
struct Cost {
  double flops = 0.0;  ///< Multiply and add count as two.
  double parameter_bytes = 0.0;
  double activation_bytes = 0.0;  ///< Kept for backward: its outputs and what else, not its inputs.
  double spared_flops = 0.0;  ///< Of flops, those that own kernels do without (Winograd's convolution), and
  double transformed_bytes = 0.0;  ///< what they read in the place of parameter_bytes; 0: the same.
  double step_bytes = 0.0;         ///< Kept once for all micro-batches of a step.
  double gradient_bytes = 0.0;   ///< Made at once beside those of inputs and outputs, and not in their place.
  double workspace_bytes = 0.0;  ///< Beside all these while own kernels make gradients.
  double columns_bytes = 0.0;    ///< The same that LibTorch lays out for convolutions in double.
  double inner_bytes = 0.0;      ///< Gradients of what lies inside, at once, while it runs again in backward.
  double passed_on = 0.0;        ///< Elements of its outputs that are inputs, or views of them.
  double entered_bytes = 0.0;    ///< Of sliced layers: gradients that are summed over the tensor group,
  double left_bytes = 0.0;       ///< and outputs that are.

  /// In mixed precision: products of what comes in, or of what the layer makes of it, take and give 16 bits;
  /// none: everything is in the type that comes in.
  enum class Products { none, of_inputs, inside } products = Products::none;
  double full_bytes = 0.0;    ///< Of activation_bytes, what stays in 32 bits then; the outputs, if any.
  double inside_bytes = 0.0;  ///< Of activation_bytes, what stays as it is then and does not go out,
  double inside_parameter_bytes = 0.0;  ///< and of parameter_bytes, what it is computed with.
  double layout_bytes = 0.0;  ///< Of activation_bytes, inputs in another layout: then there are none.

  /// What a weight's gradient is made from, in elements, and the weight's: StepMemory may keep the former.
  struct Factors {
    double elements = 0.0;
    double weight = 0.0;
  };
  std::vector<Factors> factors;  ///< Of one micro-batch.
};

/// What a layer keeps for backward in mixed precision.
struct MixedCost {
  double activation_bytes = 0.0;  ///< As Cost has it.
  double weight_bytes =
      0.0;                  ///< Its parameters in 16 bits, kept too unless there is a copy (Parameter::half).
  bool gives_half = false;  ///< What goes out is in 16 bits.
};
/// `input_elements`: of all inputs; `takes_half`: they are in 16 bits.
MixedCost mixed_cost(const Cost& cost, double input_elements, bool takes_half);

/// One place in a model's ordered list. A model can be cut between any two layers.
class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const std::string& name() const { return name_; }
  virtual Tensors forward(const Tensors& inputs, const Context& context) = 0;
  /// forward() in the precision and with the kernels that the context asks for.
  Tensors run(const Tensors& inputs, const Context& context);

  /// Whether forward() also takes two tensors of one shape in place of its input, and adds them up.
  virtual bool takes_pairs() const { return false; }

  /// Shapes after this layer for the given input shapes (dim 0 is the batch), without computing.
  virtual std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const = 0;
  virtual Cost cost(const std::vector<Shape>& inputs) const = 0;

  /// Leaves this rank its part of the parameters that may be sliced, and computes with the other ranks of
  /// `group`, borrowed, from now on. `flow`: what its inputs are; returns what its outputs are. A layer that
  /// treats every channel or feature alike has nothing to do. Parameters lose their values.
  virtual Flow slice(TensorGroup& group, const Flow& flow);

  /// Parameters of other layers that this one uses too: tied weights.
  virtual std::vector<BorrowedParameter*> borrowed() { return {}; }

  /// Outputs along dim 1 of inputs with 2 or 4 dims (features, channels), of which each is made with weights
  /// of its own from one tensor; 0: they are not, or the layer is sliced.
  virtual std::int64_t own_outputs() const { return 0; }
  /// Leaves this layer its first `kept` own_outputs(), and returns one that gives the others. The parameters
  /// of both are parts of the whole ones, and lose their values.
  virtual std::unique_ptr<Layer> cut_outputs(std::int64_t kept);

  virtual std::vector<Parameter>& parameters() { return parameters_; }
  std::vector<Buffer>& buffers() { return buffers_; }
  virtual const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }

 protected:
  std::vector<Parameter> parameters_;
  std::vector<Buffer> buffers_;

 private:
  std::string name_;
};

}  // namespace dtrain::models
