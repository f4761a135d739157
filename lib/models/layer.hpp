#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/philox.hpp"
#include "models/row_gradients.hpp"

namespace dtrain::models {

/// What flows between two layers. Most layers take and give one tensor; a decoder also takes its target
/// words.
using Tensors = std::vector<at::Tensor>;
using Shape = std::vector<std::int64_t>;

enum class Mode { training, evaluation };

/// A forward pass may be repeated for backward instead of keeping what it needs; the repetition counts
/// nothing.
enum class Pass { first, repeated };

/// What a decoder reads as the word before: the target's word, its own, or in training either by chance
/// (teacher forcing).
enum class Feedback { by_chance, targets, own_words };

/// All that a forward pass may depend on besides its inputs and parameters.
struct Context {
  Mode mode = Mode::training;
  Pass pass = Pass::first;
  std::uint64_t seed = 1;
  std::uint32_t step = 0;                   ///< Counts from 1.
  std::uint32_t micro_batch = 0;            ///< Index of the piece within the step.
  Feedback feedback = Feedback::by_chance;  ///< In evaluation by_chance means targets.

  /// The stream for a layer's dropout mask: no number depends on how many ranks there are.
  kernels::RandomKey dropout_key(std::uint32_t layer) const {
    return {seed, kernels::Purpose::dropout, step, micro_batch, layer};
  }
};

/// How a parameter starts: PyTorch's default of its layer, unless a recipe says otherwise.
struct Initialisation {
  enum class Kind { zero, one, uniform, normal };
  Kind kind = Kind::zero;
  double scale = 0.0;  ///< Half-width of the uniform distribution, standard deviation of the normal one.
  std::int64_t zero_rows = 0;  ///< So many first rows are zero instead: padding's.
};

/// Which dim of a parameter may be cut over the tensor axis, and in what manner.
enum class Slicing { none, column, row, vocabulary, heads, channels_out, channels_in };

/// A trainable tensor. `value` is a leaf that requires gradients; parallel replaces its storage by a view
/// into flat memory, so keep the Parameter, not a copy of the tensor.
struct Parameter {
  std::string name;  ///< PyTorch's state_dict name.
  at::Tensor value;
  Initialisation init;
  Slicing slicing = Slicing::none;
  bool by_rows = false;  ///< A step uses few rows, and the layer can hand their gradient to `rows`.
  std::shared_ptr<RowGradients> rows = nullptr;  ///< Set by who takes the gradient by rows; else null.
  /// How often backward meets it in a micro-batch: a tied weight on a rank that walks its uses apart, twice.
  int uses = 1;
  /// Where the next gradient may be written instead of into memory of its own; undefined while nowhere.
  at::Tensor gradient_slot = {};

  /// The slot, for one gradient: the tensor to write to and to return as the gradient, or an undefined one.
  at::Tensor take_gradient_slot() { return std::exchange(gradient_slot, {}); }
};

/// State that is saved and agreed upon but not trained (BatchNorm's running statistics). It changes once per
/// step, alike on all ranks (parallel/step_statistics.hpp): a forward pass only adds to the step's sums.
struct Buffer {
  enum class Update {
    moving_mean,  ///< value += momentum (step_sum / step_weight - value), the sums being all ranks'.
    count_steps,  ///< value += 1.
  };
  std::string name;
  at::Tensor value;
  Update update = Update::moving_mean;
  double momentum = 0.1;
  at::Tensor step_sum;     ///< double, of the value's shape: this rank's micro-batches, weighted by samples.
  double step_weight = 0;  ///< Samples in it.
};

/// What one layer costs for a given input, forward only; backward costs twice that.
struct Cost {
  double flops = 0.0;  ///< Multiply and add count as two.
  double parameter_bytes = 0.0;
  double activation_bytes = 0.0;  ///< Kept for backward.
};

/// One place in a model's ordered list. A model can be cut between any two layers.
class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const std::string& name() const { return name_; }
  virtual Tensors forward(const Tensors& inputs, const Context& context) = 0;

  /// Shapes after this layer for the given input shapes (dim 0 is the batch), without computing.
  virtual std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const = 0;
  virtual Cost cost(const std::vector<Shape>& inputs) const = 0;

  /// Parameters of other layers that this one uses too: tied weights.
  virtual std::vector<Parameter*> borrowed() { return {}; }

  std::vector<Parameter>& parameters() { return parameters_; }
  std::vector<Buffer>& buffers() { return buffers_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }

 protected:
  std::vector<Parameter> parameters_;
  std::vector<Buffer> buffers_;

 private:
  std::string name_;
};

}  // namespace dtrain::models
