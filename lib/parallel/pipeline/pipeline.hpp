#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "comm/group.hpp"
#include "comm/queue.hpp"
#include "core/span_sink.hpp"
#include "models/model.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "parallel/pipeline/segments.hpp"
#include "parallel/pipeline/stage_cuts.hpp"
#include "parallel/pipeline/stage_messages.hpp"

namespace dtrain::parallel {

/// The tied parameters that backward meets again in a micro-batch: a rank walks over the owner's and the
/// borrower's segments one after the other, and each walk leaves a gradient. Once for each further gradient.
/// `repeated_layers`: see Pipeline::Parts.
std::vector<const models::Parameter*> parameters_met_again(models::Model& model, const StageCuts& cuts,
                                                           std::int64_t repeated_layers);

/// One copy of a model on the ranks of a pipeline: does this rank's share of a schedule, and passes
/// activations on and gradients back. A whole model on one rank is a pipeline of one.
class Pipeline {
 public:
  struct Parts {
    models::Model& model;  ///< Holds this rank's layers.
    const StageCuts& cuts;
    comm::Group& pipe;  ///< Its ranks, in order of their stages.
    comm::Queue& queue;
    SpanSink& sink;
    StageMessages::SampleShapes shapes = StageMessages::SampleShapes::alike;
    /// So many first layers of each stage run again in backward instead of keeping what they need.
    std::int64_t repeated_layers = 0;
    at::Device device = at::kCPU;  ///< Where the layers compute.
  };
  explicit Pipeline(const Parts& parts);

  /// Of this pipeline's model, cuts and repeated layers.
  std::vector<const models::Parameter*> met_again() const;

  /// From now on `weights`, borrowed, brings the weights of each layer.
  void keep_weights(LayerWeights& weights);

  int ranks() const { return parts_.pipe.size(); }
  bool is_first() const { return parts_.pipe.rank() == 0; }                          ///< Reads the samples.
  bool is_last() const { return parts_.cuts.rank_of(last_) == parts_.pipe.rank(); }  ///< Has the loss.

  /// What training needs from outside; micro-batches count from 0 within the schedule, and come in ascending
  /// order.
  struct Training {
    std::function<models::Context(int micro_batch)> context;
    /// What the first layer takes; called on the first rank only.
    std::function<models::Tensors(int micro_batch)> inputs;
    /// The scalar to differentiate, from the last layer's outputs; called on the last rank only.
    std::function<at::Tensor(int micro_batch, const models::Tensors& outputs)> loss;
    /// A micro-batch has run backward through a stage of this rank.
    std::function<void(int micro_batch)> taken_back = {};
  };
  /// Forward and back as `schedule` says. `samples`: of each of its micro-batches, the same on all ranks of
  /// the pipeline; for micro-batches behind the last of them only the weights are brought. Gradients arrive
  /// in each parameter's .grad. Collective over the pipeline.
  void train(const Schedule& schedule, const std::vector<std::int64_t>& samples, const Training& work);

  /// The same for evaluation.
  struct Evaluation {
    models::Context context;
    std::function<models::Tensors(int micro_batch)> inputs;
    /// Takes the last layer's outputs and those of `code_layer`, undefined without; on the last rank only.
    std::function<void(int micro_batch, const models::Tensors& outputs, const at::Tensor& codes)> outputs;
    std::optional<std::size_t> code_layer;
    /// Micro-batches of the copy of the model that has most: for them all copies bring their layers' weights.
    int most = 0;
  };
  /// Forward only, without gradients. `schedule` is of make_forward_schedule(). Collective over the pipeline.
  void evaluate(const Schedule& schedule, const std::vector<std::int64_t>& samples, const Evaluation& work);

 private:
  void forward(const Action& action, const Training& work);
  void backward(const Action& action, const Training& work);
  void evaluate_stage(const Action& action, const Evaluation& work);
  void idle(const Action& action);
  void bring(std::int64_t layer, const Range& layers);
  void bring_idle(const Range& layers);
  void drop(std::int64_t layer);
  models::Tensors received(StageMessages& messages, const Action& action);
  const Range& layers_of(int stage) const { return parts_.cuts.layers[static_cast<std::size_t>(stage)]; }

  struct Kept {
    Passed passed;
    at::Tensor loss;  // of the last stage
  };
  Parts parts_;
  int last_;                          // stage
  std::map<int, SegmentWalk> walks_;  // by stage: this rank's
  LayerWeights* weights_ = nullptr;   // null: they are there
  StageMessages messages_;
  StageMessages evaluation_messages_;         // layers may lay their outputs out otherwise
  std::map<std::pair<int, int>, Kept> kept_;  // by stage and micro-batch: forward is done, backward is not
};

}  // namespace dtrain::parallel
