#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "data/loader.hpp"
#include "data/shards/dataset.hpp"
#include "models/model.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "parallel/step/step_control.hpp"
#include "train/config/config.hpp"
#include "train/setup/preparation.hpp"

namespace dtrain::train {

/// Whether a model's outputs can be right or wrong, or only near or far.
enum class Scoring { loss_and_accuracy, loss_only };

/// Means over a split, each sample counted once.
struct Scores {
  double loss = 0;      ///< NaN when there was no sample.
  double accuracy = 0;  ///< In [0, 1]; NaN where the model has no such notion.
  std::int64_t samples = 0;
};

struct EvaluationResult {
  Scores own;                 ///< Of this rank's share.
  Scores total;               ///< Of the whole split: the same on every rank.
  std::vector<double> extra;  ///< Of the whole split: the model's extra columns.
  std::vector<std::int64_t>
      confusion;  ///< [classes, classes]: samples by class and predicted class; empty where there are none.
  double time_s = 0;
};

/// What one batch of an evaluation came to, in the order of the samples.
struct BatchOutputs {
  const data::Batch& batch;
  const at::Tensor& targets;
  const models::Tensors& outputs;  ///< Of the last layer.
  const at::Tensor& codes;         ///< Of the layer that Model::code_layer() names; else undefined.
};
using OutputSink = std::function<void(const BatchOutputs& outputs)>;

/// Samples per forward pass of an evaluation: what `--eval-batch` says, or so many that their activations
/// take no more memory than a micro-batch's of training, or little; under a memory limit as many as it has
/// room for, or with tensor slices as a micro-batch has. `sample_bytes`: of a forward pass; `held_bytes`:
/// what training holds beside activations; both the same on all ranks. Throws Error (exit code 2) when what
/// is asked for does not fit in the limit.
std::int64_t evaluation_batch(const RunConfig& config, double sample_bytes, double held_bytes);

/// The model's loss and accuracy over a split. Data rank r takes samples part_of(n, r, ranks): no padding, no
/// duplicates, however uneven.
class Evaluation {
 public:
  struct Parts {
    models::Model& model;
    parallel::Pipeline& pipeline;
    int stages_per_rank = 1;
    const Preparation& preparation;
    comm::Group& world;
    comm::Group& data;
    bool counts_common = true;  ///< Whether this rank counts what its tensor group has in common.
    Scoring scoring = Scoring::loss_and_accuracy;
    std::optional<at::ScalarType> half = {};         ///< Mixed precision, see models::ProductScope.
    models::Kernels kernels = models::Kernels::own;  ///< See models::KernelScope.
  };
  /// `samples`: in the split; `batch`: samples per forward pass. Collective over the world.
  Evaluation(const Parts& parts, data::Loader loader, std::int64_t samples, std::int64_t batch);

  /// Collective over the world. `sink` is called on the last rank of each pipeline; it may be empty.
  EvaluationResult run(const OutputSink& sink = {});

 private:
  using Take = std::function<void(const BatchOutputs& outputs)>;
  void pass(const models::Context& context, bool wants_codes, const Take& take);
  std::vector<data::PieceRequest> requests() const;
  int most_batches() const;  // of a data rank

  Parts parts_;
  data::Loader loader_;
  std::int64_t samples_;
  std::int64_t batch_;
  parallel::StepControl control_;
};

/// Means from sums: the loss over the weights, the accuracy over the plain number of samples (or tokens).
Scores scores_of(const parallel::StepTotals& sums, std::int64_t samples, Scoring scoring);

}  // namespace dtrain::train
