#pragma once

#include <string>

#include "comm/mpi/mpi_environment.hpp"
#include "core/log.hpp"
#include "train/config/config.hpp"
#include "train/loop/evaluation.hpp"

namespace dtrain::inference {

/// Which split of its dataset a trained model is measured on, and what is kept.
struct EvaluateRequest {
  std::string split = "test";
  std::string predictions;  ///< A file for what the model says of each sample; empty: none.
};

/// Measures the weights that config.model.init_from names on a split, shared out over all ranks, prints one
/// line, and writes the predictions. `config` is resolved and validated, and the same on every rank.
/// Collective over MPI_COMM_WORLD. Throws Error.
train::EvaluationResult evaluate_checkpoint(const train::RunConfig& config, const EvaluateRequest& request,
                                            comm::MpiEnvironment& mpi, const Log& log);

}  // namespace dtrain::inference
