#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "data/dataset.hpp"
#include "h5/library.hpp"
#include "models/model.hpp"
#include "train/config.hpp"
#include "train/evaluation.hpp"
#include "train/preparation.hpp"

namespace dtrain::train {

/// A model and the dataset it is to be trained on, each fitted to the other.
struct Workload {
  data::Dataset dataset;
  data::ReadOptions read;  ///< How its files are read (`--staging`).
  std::unique_ptr<models::Model> model;
  std::optional<Augmentation> augmentation;  ///< Of training batches.
  at::Tensor class_weights;  ///< Of the training loss, [classes] of the run's type; undefined without.
  Scoring scoring = Scoring::loss_and_accuracy;
  std::string remark;           ///< What `--init-from` did not match, for people; mostly empty.
  double flops_per_sample = 0;  ///< Of one training step: forward and twice that backward.
};

/// Opens or makes the dataset and builds the model for it, its parameters initialised from the seed, or taken
/// from `--init-from`. With
/// `--staging memory|local=DIR` collective over `team`, the ranks of this node.
/// Throws Error: exit code 2 when they do not fit each other, 3 for the dataset, 4 for the weights.
Workload make_workload(const RunConfig& config, const data::NodeTeam& team, h5::Library& library);

}  // namespace dtrain::train
