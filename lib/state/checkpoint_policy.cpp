#include "state/checkpoint_policy.hpp"

#include <fmt/format.h>

#include <utility>

namespace dtrain::state {

bool CheckpointPolicy::due_at(double now_s) const {
  return every_.unit == Interval::Unit::seconds && now_s - last_s_ >= every_.count;
}

bool CheckpointPolicy::due_after_step(std::int64_t step) const {
  return every_.unit == Interval::Unit::steps && step % static_cast<std::int64_t>(every_.count) == 0;
}

bool CheckpointPolicy::ends_interval(int epoch) const {
  return every_.unit == Interval::Unit::epochs && epoch % static_cast<std::int64_t>(every_.count) == 0;
}

bool CheckpointPolicy::due_after_epoch(int epoch) const { return most_share_ == 0 && ends_interval(epoch); }

bool CheckpointPolicy::pays_after_epoch(int epoch, double now_s) const {
  return most_share_ > 0 && ends_interval(epoch) && took_s_ <= most_share_ * (now_s - last_s_);
}

void CheckpointPolicy::begin(checkpoint::CheckpointInfo& info, double now_s) {
  if (info.best.step == info.step) {
    best_before_ = std::exchange(best_, info.best);
  } else {
    info.best = best_;
  }
  begun_step_ = info.step;
  last_s_ = now_s;
}

void CheckpointPolicy::succeed(double took_s) {
  took_s_ = took_s;
  saved_step_ = std::exchange(begun_step_, 0);
  problem_.clear();
}

bool CheckpointPolicy::fail(const std::string& reason) {
  if (begun_is_best()) best_ = best_before_;
  const std::string before =
      std::exchange(problem_, fmt::format("the checkpoint of step {} is missing: {}", begun_step_, reason));
  begun_step_ = 0;
  return problem_ != before;
}

void CheckpointPolicy::go_on_from(std::int64_t step, const checkpoint::BestSoFar& best) {
  saved_step_ = step;
  best_ = best;
}

}  // namespace dtrain::state
