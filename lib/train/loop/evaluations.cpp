#include "train/loop/evaluations.hpp"

#include <utility>

namespace dtrain::train {

data::LoaderOptions loader_options(const Job& job) {
  return {.drive = job.has_spare_core() ? data::LoaderOptions::Drive::thread
                                        : data::LoaderOptions::Drive::inline_call};
}

std::optional<EvaluationResult> Evaluations::run(const std::string& split, const OutputSink& sink) {
  const auto samples = workload_.dataset.info().samples(split);
  if (samples == 0) return std::nullopt;
  if (injection_ != nullptr) injection_->reach(split == "test" ? "test" : "evaluation");
  auto place = of_split_.find(split);
  if (place == of_split_.end()) {
    const comm::LongPhase staging(job_.world(), files_limit_s_);
    data::Loader loader(workload_.dataset, split, loader_options(job_), workload_.read);
    place = of_split_
                .try_emplace(split, replica_.evaluation_parts(), std::move(loader), samples,
                             workload_.evaluation_batch)
                .first;
    job_.world().barrier();
  }
  return place->second.run(sink);
}

}  // namespace dtrain::train
