#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/layer.hpp"

namespace dtrain::models {

/// One of several inputs that a sample holds one behind the other, as numbers of one row.
struct InputFacts {
  std::string name;
  Shape shape;           ///< Of one sample.
  std::int64_t ids = 0;  ///< Whole numbers below this one; 0: real numbers.
};

/// What a model must know of its dataset, filled from dataset.json, and of its task.
struct DatasetFacts {
  std::string task;                    ///< image_classification, table_classification, regression, ...
  Shape sample_shape;                  ///< Of one sample, without the batch dim: [C, H, W], [F], [T, F].
  std::int64_t classes = 0;            ///< 0 when there are none.
  std::int64_t targets = 1;            ///< Numbers in the target of a sample of a regression.
  std::int64_t vocabulary = 0;         ///< Tokens; 0 when there is no text. Of the source language for pairs.
  std::int64_t target_vocabulary = 0;  ///< Of the target language; 0 unless the samples are pairs.
  std::vector<InputFacts> inputs = {};  ///< Empty: a sample is one input, of sample_shape.
  std::string loss = {};  ///< `--loss` as the user chose it; empty: the model's own. See loss_of().
};

/// `--model-option KEY=VALUE`, unparsed. A model refuses keys it does not know.
using ModelOptions = std::map<std::string, std::string>;

/// Sums over one micro-batch: never means, so that pieces of any size add up.
struct LossSums {
  at::Tensor loss;  ///< Scalar in the graph: the sum of the samples' losses. backward() starts here.
  at::Tensor
      correct;  ///< int64 scalar: rightly classified samples; undefined where a model has no such notion.
  double weight = 0;   ///< Samples or target tokens that `loss` sums over; with class weights their sum.
  double counted = 0;  ///< What `correct` is out of; 0: as many as `weight`.
};

/// What the loss of training has besides that of evaluation.
struct TrainingLoss {
  at::Tensor class_weights = {};  ///< [classes], of the outputs' type: what a sample of each class counts.
  double label_smoothing = 0;     ///< Of each target's probability, what is spread over all classes or words.
  bool plain() const { return !class_weights.defined() && label_smoothing == 0; }
};

/// Figures of the validation split that a model adds to its loss and accuracy: more columns of /epochs.
struct ExtraColumns {
  enum class Log { yes, no };  ///< Whether the line of an epoch shows it, too.
  struct Column {
    std::string name;   ///< E.g. `validation_r2`.
    std::string units;  ///< `1` for a pure number.
    Log log = Log::yes;
    /// Of an error: the target of a regression in whose units the evaluation gives it; -1: of no target.
    int target = -1;
  };
  std::vector<Column> columns;
  std::size_t sums = 0;  ///< Numbers that extra_sums() gives for each batch.
  /// The last confusion_classes^2 of the sums count samples by class and predicted class, row-major: a
  /// confusion matrix. 0: there is none.
  std::int64_t confusion_classes = 0;
};

/// What a model's outputs are compared with.
enum class Goal {
  target,     ///< The sample's target; images of classifiers are standardised.
  own_input,  ///< The input itself, bytes / 255: an autoencoder.
  own_loss    ///< The target, which the layers take as a second input: their output is the loss.
};

/// What Model::initialise() fills a parameter with: this rank's part, on the CPU.
at::Tensor first_values(const Parameter& parameter, std::uint64_t seed);

/// A network as an ordered list of layers, and the loss at its end. Knows nothing of ranks.
class Model {
 public:
  /// Throws Error when two parameters share a name or (by a hash) a random stream.
  Model(std::string name, std::vector<std::unique_ptr<Layer>> layers);
  virtual ~Model() = default;

  const std::string& name() const { return name_; }
  std::vector<std::unique_ptr<Layer>>& layers() { return layers_; }
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }

  /// Puts two layers in the place of one: the first gives its first `kept` own_outputs(), the second, behind
  /// it, all of them (models/layers/outputs_in_two.hpp). Before hold() and initialise().
  void cut_layer(std::size_t layer, std::int64_t kept);

  /// Leaves memory to these layers only (indices, ascending), as a stage of a pipeline needs it: the others'
  /// parameters and buffers become shapes, except those that one of these layers borrows. Layers of which
  /// nothing is held must not run.
  void hold(const std::vector<std::size_t>& layers);
  bool holds(std::size_t layer) const { return held_.at(layer); }

  /// Leaves this rank its slices of the parameters, and lets the layers compute with the other ranks of
  /// `group` (borrowed) from now on: see Layer::slice(). After hold(), before initialise(). Throws Error
  /// (exit code 2) when a layer cannot be shared by so many ranks.
  void slice(TensorGroup& group);

  /// Freezes the parameters that `chosen` picks by name, of all layers. Returns their names.
  std::vector<std::string> freeze(const std::function<bool(const std::string& name)>& chosen);

  std::vector<Parameter*> parameters();  ///< Of the layers held, in their order.
  std::vector<Buffer*> buffers();
  std::int64_t parameter_count() const;  ///< Of all layers, slices counted as the whole.

  /// A parameter that a layer uses and another one owns.
  struct Borrowed {
    Parameter* parameter = nullptr;
    BorrowedParameter* use = nullptr;  ///< The borrower's.
    std::size_t owner = 0;             ///< Index of the layer that owns it.
    std::size_t borrower = 0;          ///< Index of the layer that uses it too.
  };
  std::vector<Borrowed> borrowed();

  /// Shapes of what the first layer takes for `n` samples whose shape is `sample`.
  virtual std::vector<Shape> input_shapes(std::int64_t n, const Shape& sample) const;

  /// Forward FLOPs of one sample whose shape is `sample` (without the batch dim).
  double forward_flops(const Shape& sample) const;

  virtual Goal goal() const { return Goal::target; }

  /// What a log says of it at the start of a run, beside its name; empty: nothing.
  virtual std::string remark() const { return {}; }

  /// SHA-256 of what is computed, for a model that was read from a file; empty for one that dtrain defines.
  virtual std::string program_hash() const { return {}; }
  /// SHA-256 of the tensors that such a file has beside its state, as numbers written in `forward`; empty
  /// where it has none.
  virtual std::string constants_hash() const { return {}; }
  /// Writes that file without its weights, for a run folder; nothing where there is no file. Throws Error.
  virtual void save_program(const std::string& /*path*/) const {}

  /// The loss of the last layer's outputs against `targets`: [n], or the inputs where that is the goal.
  virtual LossSums loss(const Tensors& outputs, const at::Tensor& targets) const = 0;

  /// Throws Error (exit code 3) where samples on the CPU hold ids outside the vocabulary, of which a device
  /// could not say as much. Called before a device is given samples of which it alone computes the loss.
  virtual void require_known(const Tensors& inputs, const at::Tensor& targets) const;

  /// Index of the layer whose output describes a sample in short (an autoencoder's codes), where there is
  /// one.
  virtual std::optional<std::size_t> code_layer() const { return std::nullopt; }

  /// Whether it tells classes apart, so that `--class-weights` means something.
  virtual bool classifies() const { return false; }
  /// Whether its loss is a cross-entropy, over classes or words, so that `--label-smoothing` means something.
  virtual bool has_cross_entropy() const { return classifies(); }
  /// Whether training_loss() takes outputs in half precision, too, where fused kernels are on (KernelScope).
  virtual bool takes_half_outputs() const { return false; }
  /// What it is trained with. Throws Error where `how` means nothing to it.
  virtual LossSums training_loss(const Tensors& outputs, const at::Tensor& targets,
                                 const TrainingLoss& how) const;

  /// The model's own columns; none unless it says otherwise.
  virtual ExtraColumns extra_columns() const { return {}; }
  /// What one validation batch adds to the sums behind them, `outputs` being the last layer's, which ran with
  /// these words fed back: those of the evaluation itself (Feedback::targets), and then once more those of
  /// extra_feedback(). Called without gradients. Sums add up over batches and ranks.
  virtual std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                         Feedback words) const;
  /// How the layers run a second time over the split; nothing: they do not.
  virtual std::optional<Feedback> extra_feedback() const { return std::nullopt; }
  /// The columns' values from the sums over the whole split, whose mean loss is `loss`.
  virtual std::vector<double> extra_values(std::span<const double> sums, double loss) const;

  /// Gives every parameter and buffer fresh memory of this floating type on this device; values are lost, so
  /// initialise() comes after it. make() leaves float on the CPU; a model of more than 1e8 elements may have
  /// shapes only until then or until it is initialised.
  void to(at::ScalarType dtype, at::Device device);

  /// Fills every parameter from Philox(seed, parameter name, element index): the same on every layout.
  /// Computed in float and cast, so that fp32 and fp64 start alike.
  void initialise(std::uint64_t seed);
  /// The same, but parameters that are shapes only stay so.
  void fill(std::uint64_t seed);

  /// Leaves shapes only of the parameters held here that are trained, and gives all others, and the buffers,
  /// memory of their own again; values of parameters are lost. Before fill(), where first_values() are to
  /// come one by one.
  void leave_shapes();

 protected:
  TensorGroup* group() const { return group_; }     ///< Null: nothing is sliced.
  const Flow& outputs() const { return outputs_; }  ///< What the last layer's outputs are.

 private:
  std::vector<Parameter*> with_memory();  // held, or borrowed by a layer held

  std::string name_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<bool> held_;
  TensorGroup* group_ = nullptr;
  Flow outputs_;
};

/// What a model is trained with where the user says nothing (DESIGN, models and their default recipes).
struct Recipe {
  std::string dataset;  ///< What the model is usually trained on.
  /// Values of a run's options, as they are typed, by the option's name without dashes. Options that are not
  /// here have the defaults that they have for every model.
  std::map<std::string, std::string> options = {};
};

/// The text that a model is made for, whatever dataset it meets. 0: any.
struct TextSizes {
  std::int64_t vocabulary = 0;
  std::int64_t tokens = 0;  ///< Of a sample.
};

/// A model's entry in the registry: one file, one line.
struct Registration {
  std::string name;
  Recipe recipe;
  std::function<std::unique_ptr<Model>(const DatasetFacts& facts, const ModelOptions& options)> make;
  /// Of a model with these options; null: any text. Throws Error (exit code 2) for an option that is wrong.
  TextSizes (*text)(const ModelOptions& options) = nullptr;
};

const std::vector<Registration>& registry();

/// The model of that name, or, where it ends in `.pt2`, of the program in that file (models/exported), which
/// is read when the model is made. Throws Error (exit code 2) that lists the models there are.
Registration find_model(const std::string& name);

/// What a model is called in results and checkpoints: of a file its name without folder and ending.
std::string model_title(const std::string& name);

/// Whether `name` is that of a file.
bool is_program_file(const std::string& name);

}  // namespace dtrain::models
