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
  next_step_ = done;
  unread_ = std::make_shared<std::deque<Taken>>();
  if (facts_.take) return;
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

parallel::StepPlan WorkPlan::empty_plan(std::int64_t step_of_epoch) const {
  parallel::StepPlan plan{.number = first_step_ + step_of_epoch + 1};
  plan.learning_rate = optim::learning_rate(facts_.schedule, plan.number, facts_.total_steps);
  return plan;
}

std::optional<parallel::MicroBatch> WorkPlan::micro_batch(std::int64_t step_of_epoch, int index) const {
  const auto piece = facts_.pieces.piece(step_of_epoch, index);
  if (piece.size() == 0) return std::nullopt;
  return parallel::MicroBatch{.index = static_cast<std::uint32_t>(index),
                              .ids = {order_.begin() + piece.begin, order_.begin() + piece.end}};
}

parallel::StepPlan WorkPlan::plan_of(std::int64_t step_of_epoch) const {
  const auto mine = facts_.pieces.owned_by(facts_.data_rank);
  auto plan = empty_plan(step_of_epoch);
  for (auto k = mine.begin; k < mine.end; ++k) {
    if (auto found = micro_batch(step_of_epoch, static_cast<int>(k)))
      plan.micro_batches.push_back(*std::move(found));
  }
  return plan;
}

const parallel::StepPlan* WorkPlan::next() {
  if (facts_.take) return take_next();
  return next_ < plans_->size() ? &(*plans_)[next_++] : nullptr;
}

const parallel::StepPlan* WorkPlan::take_next() {
  if (next_step_ >= steps_) return nullptr;
  auto last = next_step_;
  while (last + 1 < steps_ && !(facts_.pauses_after && facts_.pauses_after(first_step_ + last + 1))) ++last;
  const auto unit = facts_.take({.first = first_step_ + next_step_ + 1, .last = first_step_ + last + 1});
  if (!unit) {
    taken_ = empty_plan(last);
    taken_.pauses = true;
    next_step_ = last + 1;
    return &taken_;
  }
  const auto step = unit->step - first_step_ - 1;
  taken_ = empty_plan(step);
  if (auto found = micro_batch(step, unit->micro_batch)) {
    taken_.share =
        static_cast<double>(found->samples()) / static_cast<double>(facts_.pieces.step(step).size());
    unread_->push_back({unit->step - 1, *found});
    taken_.micro_batches.push_back(*std::move(found));
  }
  return &taken_;
}

data::Loader::RequestStream WorkPlan::requests() const {
  if (facts_.take) {
    return [unread = unread_](data::PieceRequest& request) {
      if (unread->empty()) return false;
      auto& [step, micro_batch] = unread->front();
      request = {.step = step,
                 .micro_batch = static_cast<int>(micro_batch.index),
                 .samples = std::move(micro_batch.ids)};
      unread->pop_front();
      return true;
    };
  }
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
