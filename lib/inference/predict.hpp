#pragma once

#include <string>

#include "comm/mpi/mpi_environment.hpp"
#include "core/log.hpp"
#include "data/unlabelled/unlabelled.hpp"
#include "train/config/config.hpp"

namespace dtrain::inference {

/// New samples, and where to write what a trained model says of them.
struct PredictRequest {
  data::UnlabelledOptions data;
  std::string output;  ///< `.csv` (see record::write_predictions_csv) or `.h5` (see write_predictions).
};

/// Applies the model that config.model.init_from names to new samples, shared out over all ranks, each sample
/// transformed as the checkpoint says its training's were; texts with the vocabulary of
/// config.data.dataset. `config` is resolved and validated, and the same on every rank; each rank reads the
/// samples. Collective over MPI_COMM_WORLD. Throws Error: exit code 2 for a model that has nothing to say, 3
/// for the samples, 4 for a checkpoint that does not keep its transformations.
void predict(const train::RunConfig& config, const PredictRequest& request, comm::MpiEnvironment& mpi,
             const Log& log);

}  // namespace dtrain::inference
