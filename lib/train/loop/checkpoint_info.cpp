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

checkpoint::EpochProgress progress_of(const EpochSums& sums) {
  checkpoint::EpochProgress progress{.loss = sums.total.loss,
                                     .weight = sums.total.weight,
                                     .correct = sums.total.correct,
                                     .counted = sums.total.counted,
                                     .samples = sums.total.samples,
                                     .learning_rate = sums.learning_rate,
                                     .staleness = sums.staleness};
  if (const auto& round = sums.round) {
    progress.round = {.sampled = round->sampled,
                      .handed_in = round->handed_in,
                      .samples = round->samples,
                      .update_norm = round->update_norm};
  }
  return progress;
}

EpochSums sums_of(const checkpoint::EpochProgress& earlier) {
  EpochSums sums{.earlier_s = earlier.train_time_s,
                 .learning_rate = earlier.learning_rate,
                 .staleness = earlier.staleness};
  sums.total = {.loss = earlier.loss,
                .weight = earlier.weight,
                .correct = earlier.correct,
                .counted = earlier.counted,
                .samples = earlier.samples};
  if (const auto& round = earlier.round) {
    sums.round = {.handed_in = static_cast<int>(round->handed_in),
                  .sampled = static_cast<int>(round->sampled),
                  .samples = round->samples,
                  .update_norm = round->update_norm};
  }
  return sums;
}

checkpoint::LossScale for_checkpoint(const optim::LossScale& state) {
  return {.scale = state.scale, .good_steps = state.good_steps, .left_out = state.left_out};
}

optim::LossScale from_checkpoint(const checkpoint::LossScale& kept) {
  return {.scale = kept.scale, .good_steps = kept.good_steps, .left_out = kept.left_out};
}

}  // namespace dtrain::train
