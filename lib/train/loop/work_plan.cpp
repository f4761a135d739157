#include "train/loop/work_plan.hpp"

#include <algorithm>
#include <utility>

#include "data/sampler.hpp"

namespace dtrain::train {

void WorkPlan::begin_epoch(int epoch, std::int64_t done) {
  const auto& pieces = facts_.pieces;
  first_step_ = (epoch - 1) * pieces.steps();
  steps_ = std::min(pieces.steps(), facts_.total_steps - first_step_);
  order_ = data::training_order(pieces.samples, facts_.lengths, pieces.global_batch, facts_.seed, epoch);
  auto plans = std::make_shared<Steps>();
  for (auto step = done; step < steps_; ++step) plans->push_back(plan_of(step));
  for (std::size_t i = 0; i + 1 < plans->size(); ++i) {
    auto& plan = (*plans)[i];
    const bool pauses = facts_.pauses_after && facts_.pauses_after(plan.number);
    plan.another_follows = !pauses && !(*plans)[i + 1].micro_batches.empty();
    plan.pauses = pauses;
  }
  if (!plans->empty()) plans->back().pauses = true;
  plans_ = std::move(plans);
  next_ = 0;
}

parallel::StepPlan WorkPlan::plan_of(std::int64_t step_of_epoch) const {
  const auto& pieces = facts_.pieces;
  const auto mine = pieces.owned_by(facts_.data_rank);
  parallel::StepPlan plan{.number = first_step_ + step_of_epoch + 1};
  plan.learning_rate = optim::learning_rate(facts_.schedule, plan.number, facts_.total_steps);
  for (auto k = mine.begin; k < mine.end; ++k) {
    const auto piece = pieces.piece(step_of_epoch, static_cast<int>(k));
    if (piece.size() == 0) continue;
    plan.micro_batches.push_back({.index = static_cast<std::uint32_t>(k),
                                  .ids = {order_.begin() + piece.begin, order_.begin() + piece.end}});
  }
  return plan;
}

const parallel::StepPlan* WorkPlan::next() { return next_ < plans_->size() ? &(*plans_)[next_++] : nullptr; }

data::Loader::RequestStream WorkPlan::requests() const {
  return [plans = plans_, step = std::size_t{0}, m = std::size_t{0}](data::PieceRequest& request) mutable {
    while (step < plans->size() && m == (*plans)[step].micro_batches.size()) {
      ++step;
      m = 0;
    }
    if (step == plans->size()) return false;
    const auto& micro_batch = (*plans)[step].micro_batches[m++];
    request = {.step = (*plans)[step].number - 1,  // a loader's steps count from 0
               .micro_batch = static_cast<int>(micro_batch.index),
               .samples = micro_batch.ids};
    return true;
  };
}

}  // namespace dtrain::train
