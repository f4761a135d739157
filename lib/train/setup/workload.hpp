#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/manifest.hpp"
#include "comm/mpi/communicator.hpp"
#include "data/shards/dataset.hpp"
#include "h5/library.hpp"
#include "models/model.hpp"
#include "parallel/pipeline/stage_cuts.hpp"
#include "parallel/pipeline/stage_messages.hpp"
#include "state/transformations.hpp"
#include "train/config/config.hpp"
#include "train/config/footprint.hpp"
#include "train/loop/evaluation.hpp"
#include "train/setup/job.hpp"
#include "train/setup/preparation.hpp"

namespace dtrain::train {

/// A model and the dataset it is to be trained on, each fitted to the other.
struct Workload {
  data::Dataset dataset;
  data::ReadOptions read;  ///< How its files are read (`--staging`).
  state::InputTransformation transformation;
  checkpoint::DatasetIdentity identity;
  std::unique_ptr<models::Model> model;
  std::optional<Augmentation> augmentation;        ///< Of training batches.
  std::optional<at::ScalarType> half;              ///< Mixed precision, see models::ProductScope.
  models::Kernels kernels = models::Kernels::own;  ///< See models::KernelScope.
  at::Device device = at::kCPU;                    ///< Where the model is.
  models::TrainingLoss training_loss;              ///< Its class weights of the run's type.
  Scoring scoring = Scoring::loss_and_accuracy;
  std::string read_in_place;  ///< Why, although `--staging` names a copy; mostly empty.
  std::string remark;         ///< What `--init-from` did not match, for people; mostly empty.
  std::string frozen;         ///< What `--freeze` takes out, for people; mostly empty.
  std::string golden;  ///< What the model's golden batch came to; empty: it has none, or it was not computed.
  checkpoint::VocabularyHashes vocabulary;  ///< Of the dataset.
  /// Whether all samples have one shape, or as many tokens as they have.
  parallel::StageMessages::SampleShapes sample_shapes = parallel::StageMessages::SampleShapes::alike;
  std::int64_t repeated_layers = 0;   ///< Of each stage, first ones that run again in backward.
  plan::Footprint footprint;          ///< What memory depends on,
  plan::MemoryEstimate memory;        ///< and how much that is, of this rank.
  parallel::StageCuts cuts;           ///< Which rank of a pipeline holds which layers.
  std::vector<double> layer_costs;    ///< By which they were cut, in any one unit.
  std::int64_t evaluation_batch = 1;  ///< Samples per forward pass of an evaluation.
  double flops_per_sample = 0;        ///< Of one training step: forward and twice that backward.
};

/// The rank that needs a workload, and the ranks it shares the work with.
struct WorkloadPlace {
  data::NodeTeam team = {};                   ///< The ranks of its node.
  int pipe_index = 0;                         ///< Of the pipeline's ranks.
  models::TensorGroup* tensor = nullptr;      ///< The ranks that share each layer; null: none.
  const comm::Communicator* world = nullptr;  ///< All ranks; null: it is alone.
  std::string host = {};                      ///< Its node's name; where there is a world.
  at::Device device = at::kCPU;               ///< Where it computes.
  MemoryFacts memory = {};                    ///< `samples` is set where the dataset is known.
};

/// `recovers`: as MemoryFacts has it.
WorkloadPlace place_of(Job& job, bool recovers = false);

/// The pipeline that evaluates the workload, without a training beside it. All is borrowed.
parallel::Pipeline::Parts evaluation_pipeline(Job& job, Workload& workload, SpanSink& sink);

/// What an evaluation of the workload needs. All is borrowed.
Evaluation::Parts evaluation_parts(Job& job, Workload& workload, parallel::Pipeline& pipeline,
                                   const Preparation& preparation);

/// Opens or makes the dataset and builds the model for it, its parameters initialised from the seed, or taken
/// from `--init-from`; the model holds this rank's layers only, of these its slices. Collective.
/// Throws Error: exit code 2 when they do not fit each other, 3 for the dataset, 4 for the weights.
Workload make_workload(const RunConfig& config, const WorkloadPlace& place, h5::Library& library);

/// The same on a dataset that is open.
Workload make_workload(const RunConfig& config, const WorkloadPlace& place, h5::Library& library,
                       data::Dataset dataset);

}  // namespace dtrain::train
