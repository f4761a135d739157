#include "train/loop/checkpoint_info.hpp"

#include <optional>
#include <string>

#include "core/version.hpp"
#include "models/exported/exported_model.hpp"
#include "state/transformations.hpp"

namespace dtrain::train {

checkpoint::CheckpointInfo info_of_run(const RunConfig& config, const Workload& workload, const Job& job) {
  const bool standardised =
      workload.transformation.floats == state::InputTransformation::Floats::standardised;
  return {.model = models::model_title(config.model.name),
          .program = workload.model->program_hash(),
          .tied = models::exported::tied_names(*workload.model),
          .dataset = workload.dataset.info().name,
          .seed = config.seed,
          .micro_batches = config.batch.micro_batches,
          .config = config.text,
          .dtrain_version = std::string(version()),
          .vocabulary = workload.vocabulary,
          .transformations =
              standardised ? std::optional(state::transformations_of(workload.dataset.info())) : std::nullopt,
          .identity = workload.identity,
          .all_reduce = job.kept_table()};
}

checkpoint::LossScale for_checkpoint(const optim::LossScale& state) {
  return {.scale = state.scale, .good_steps = state.good_steps, .left_out = state.left_out};
}

optim::LossScale from_checkpoint(const checkpoint::LossScale& kept) {
  return {.scale = kept.scale, .good_steps = kept.good_steps, .left_out = kept.left_out};
}

}  // namespace dtrain::train
