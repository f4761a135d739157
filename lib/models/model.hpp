#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layer.hpp"

namespace dtrain::models {

/// What a model must know of its dataset; filled from dataset.json.
struct DatasetFacts {
  std::string task;             ///< image_classification, table_classification, regression, ...
  Shape sample_shape;           ///< Of one sample, without the batch dim: [C, H, W], [F], [T, F].
  std::int64_t classes = 0;     ///< 0 when there are none.
  std::int64_t vocabulary = 0;  ///< Tokens; 0 when there is no text.
};

/// `--model-option KEY=VALUE`, unparsed. A model refuses keys it does not know.
using ModelOptions = std::map<std::string, std::string>;

/// Sums over one micro-batch: never means, so that pieces of any size add up.
struct LossSums {
  at::Tensor loss;  ///< Scalar in the graph: the sum of the samples' losses. backward() starts here.
  at::Tensor
      correct;  ///< int64 scalar: rightly classified samples; undefined where a model has no such notion.
  double weight = 0;  ///< Samples or target tokens that `loss` sums over.
};

/// A network as an ordered list of layers, and the loss at its end. Knows nothing of ranks.
class Model {
 public:
  /// Throws Error when two parameters share a name or (by a hash) a random stream.
  Model(std::string name, std::vector<std::unique_ptr<Layer>> layers);
  virtual ~Model() = default;

  const std::string& name() const { return name_; }
  std::vector<std::unique_ptr<Layer>>& layers() { return layers_; }
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }

  std::vector<Parameter*> parameters();  ///< In the order of the layers.
  std::vector<Buffer*> buffers();
  std::int64_t parameter_count() const;

  /// Forward FLOPs of one sample whose shape is `sample` (without the batch dim).
  double forward_flops(const Shape& sample) const;

  /// The loss of the last layer's outputs against `targets` [n].
  virtual LossSums loss(const Tensors& outputs, const at::Tensor& targets) const = 0;

  /// Index of the layer whose output describes a sample in short (an autoencoder's codes), where there is
  /// one.
  virtual std::optional<std::size_t> code_layer() const { return std::nullopt; }

  /// Gives every parameter and buffer fresh memory of this floating type on this device; values are lost, so
  /// initialise() comes after it. make() leaves float on the CPU.
  void to(at::ScalarType dtype, at::Device device);

  /// Fills every parameter from Philox(seed, parameter name, element index): the same on every layout.
  /// Computed in float and cast, so that fp32 and fp64 start alike.
  void initialise(std::uint64_t seed);

 private:
  std::string name_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

/// The default recipe of a model (DESIGN, models and their default recipes).
struct Recipe {
  std::string dataset;  ///< What the model is usually trained on.
  int epochs = 10;
  std::string optimizer = "adam";
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double weight_decay = 0.0;
  std::string schedule = "constant";
  int warmup_steps = 0;
  double grad_clip = 0.0;  ///< 0: none.
  int global_batch = 64;
  bool augment = false;
};

/// A model's entry in the registry: one file, one line.
struct Registration {
  std::string name;
  Recipe recipe;
  std::unique_ptr<Model> (*make)(const DatasetFacts& facts, const ModelOptions& options);
};

const std::vector<Registration>& registry();

/// Throws Error (exit code 2) that lists the models there are.
const Registration& find_model(const std::string& name);

}  // namespace dtrain::models
