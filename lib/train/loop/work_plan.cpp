#include "train/loop/work_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "data/sampler.hpp"

namespace dtrain::train {

void WorkPlan::begin_epoch(int epoch, std::int64_t done, const StepSize& size) {
  const auto& pieces = facts_.pieces;
  first_step_ = (epoch - 1) * pieces.steps();
  steps_ = std::min(pieces.steps(), facts_.total_steps - first_step_);
  if (facts_.draws) {
    draw(epoch);
  } else {
    order_ = data::training_order(pieces.samples, facts_.lengths, pieces.global_batch, facts_.seed, epoch);
  }
  next_step_ = done;
  size_ = size;
  unread_ = std::make_shared<std::deque<Taken>>();
  if (facts_.take) return;
  auto plans = std::make_shared<Planned>();
  for (auto step = done; step < steps_;) {
    auto last = step;
    while (last + 1 < std::min(step + size.batches, steps_) && !pauses_after(last)) ++last;
    plans->steps.push_back(plan_of(last, last + 1 - step));
    step = last + 1;
  }
  connect(plans->steps);
  plans_ = std::move(plans);
  next_ = 0;
}

void WorkPlan::draw(int epoch) {
  order_.clear();
  ends_.clear();
  for (const auto& step : facts_.draws(epoch)) {
    order_.insert(order_.end(), step.begin(), step.end());
    ends_.push_back(static_cast<std::int64_t>(order_.size()));
  }
  require(static_cast<std::int64_t>(ends_.size()) == facts_.pieces.steps(),
          "draws for other steps than there are",
          {.subject = "the plan of an epoch", .advice = "report this as a bug"});
}

/// Positions in order_ of a micro-batch.
Range WorkPlan::piece(std::int64_t step_of_epoch, int index) const {
  if (ends_.empty()) return facts_.pieces.piece(step_of_epoch, index);
  const auto step = static_cast<std::size_t>(step_of_epoch);
  const auto begin = step > 0 ? ends_[step - 1] : 0;
  const auto part = part_of(ends_[step] - begin, index, facts_.pieces.micro_batches);
  return {begin + part.begin, begin + part.end};
}

std::uint64_t WorkPlan::hash_of_first(std::int64_t steps) const {
  std::uint64_t hash = 0;
  if (steps == 0) return hash;
  if (facts_.whole_round) {
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto plan = facts_.whole_round(first_step_ + step + 1);
      for (const auto& local : plan.micro_batches) hash += data::sample_hash(local.ids);
    }
    return hash;
  }
  const auto end =
      ends_.empty() ? facts_.pieces.step(steps - 1).end : ends_[static_cast<std::size_t>(steps - 1)];
  return data::sample_hash(std::span(order_).first(static_cast<std::size_t>(end)));
}

bool WorkPlan::pauses_after(std::int64_t step_of_epoch) const {
  return facts_.pauses_after && facts_.pauses_after(first_step_ + step_of_epoch + 1);
}

/// What a step has to know of the one after it.
void WorkPlan::connect(Steps& steps) const {
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    auto& plan = steps[i];
    const bool pauses = pauses_after(plan.number - first_step_ - 1);
    plan.another_follows = !pauses && !steps[i + 1].micro_batches.empty();
    plan.pauses = pauses;
  }
  if (!steps.empty()) steps.back().pauses = true;
}

void WorkPlan::own(std::int64_t first, parallel::Ownership owned) {
  const std::lock_guard lock(plans_->mutex);
  auto& steps = plans_->steps;
  const auto begun = std::max(plans_->read, next_ > 0 ? steps[next_ - 1].number : 0);
  require(size_.batches == 1, "has steps of several batches, which are not owned by speed",
          {.subject = "the plan of a step", .advice = "report this as a bug"});
  require(first > begun, fmt::format("step {} has been begun, and is to be owned otherwise", begun),
          {.subject = "the plan of a step", .advice = "report this as a bug"});
  owned_[first] = std::make_shared<const parallel::Ownership>(std::move(owned));
  for (auto& plan : steps) {
    if (plan.number >= first) plan = plan_of(plan.number - first_step_ - 1, 1);
  }
  connect(steps);
}

std::shared_ptr<const parallel::Ownership> WorkPlan::owned_in(std::int64_t step) const {
  const auto later = owned_.upper_bound(step);
  return later == owned_.begin() ? nullptr : std::prev(later)->second;
}

parallel::StepPlan WorkPlan::empty_plan(std::int64_t step_of_epoch) const {
  parallel::StepPlan plan{.number = first_step_ + step_of_epoch + 1};
  plan.learning_rate = optim::learning_rate(facts_.schedule, plan.number, facts_.total_steps);
  return plan;
}

std::optional<parallel::MicroBatch> WorkPlan::micro_batch(std::int64_t step_of_epoch, int index) const {
  const auto own = piece(step_of_epoch, index);
  if (own.size() == 0) return std::nullopt;
  return parallel::MicroBatch{.index = static_cast<std::uint32_t>(index),
                              .ids = {order_.begin() + own.begin, order_.begin() + own.end}};
}

/// `step_of_epoch`: the last of so many batches.
parallel::StepPlan WorkPlan::plan_of(std::int64_t step_of_epoch, std::int64_t batches) const {
  auto plan = empty_plan(step_of_epoch);
  if (facts_.round) {
    auto round = facts_.round(plan.number);
    round.number = plan.number;
    round.learning_rate = plan.learning_rate;
    return round;
  }
  plan.owned = owned_in(plan.number);
  const auto mine = plan.owned != nullptr ? plan.owned->at(static_cast<std::size_t>(facts_.data_rank))
                                          : facts_.pieces.owned_by(facts_.data_rank);
  plan.learning_rate *= size_.rate;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    plan.samples += facts_.pieces.step(step_of_epoch + 1 - batches + batch).size();
    for (auto k = mine.begin; k < mine.end; ++k) {
      auto found = micro_batch(step_of_epoch + 1 - batches + batch, static_cast<int>(k));
      if (!found) continue;
      found->index += static_cast<std::uint32_t>(batch * facts_.pieces.micro_batches);
      plan.micro_batches.push_back(*std::move(found));
    }
  }
  return plan;
}

const parallel::StepPlan* WorkPlan::next() {
  if (facts_.take) return take_next();
  return next_ < plans_->steps.size() ? &plans_->steps[next_++] : nullptr;
}

const parallel::StepPlan* WorkPlan::take_next() {
  if (next_step_ >= steps_) return nullptr;
  auto last = next_step_;
  while (last + 1 < steps_ && !pauses_after(last)) ++last;
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
    const std::lock_guard lock(plans->mutex);
    const auto& steps = plans->steps;
    const auto brings_nothing = [&] {  // a local step of a client that draws no record reads none
      const auto& all = steps[step].micro_batches;
      while (m < all.size() && all[m].ids.empty()) ++m;
      return m == all.size();
    };
    while (step < steps.size() && brings_nothing()) {
      ++step;
      m = 0;
    }
    if (step == steps.size()) return false;
    plans->read = steps[step].number;
    const auto& micro_batch = steps[step].micro_batches[m++];
    request = {.step = steps[step].number - 1,  // a loader's steps count from 0
               .micro_batch = static_cast<int>(micro_batch.index),
               .samples = micro_batch.ids};
    return true;
  };
}

}  // namespace dtrain::train
