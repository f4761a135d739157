#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/manifest.hpp"
#include "state/interval.hpp"

namespace dtrain::state {

/// What a run's checkpoints are to be: when one is due, which one is the best, and whether the newest is
/// there. It decides by numbers and times alone; Checkpoints writes the files. At most one is being written.
class CheckpointPolicy {
 public:
  /// `every`: Interval::Unit::never means at the end only. `now_s`: on a steady clock, as everywhere here.
  /// `most_share`: of the time that those at the ends of epochs may take; 0: none is left out.
  CheckpointPolicy(Interval every, double now_s, double most_share = 0)
      : every_(every), most_share_(most_share), last_s_(now_s) {}

  /// Whether one is due by the clock; by number after this step; at the end of this epoch.
  bool due_at(double now_s) const;
  bool due_after_step(std::int64_t step) const;
  bool due_after_epoch(int epoch) const;
  /// With a share: whether one is due at the end of this epoch, so much time having passed since the last one
  /// that it pays. By this rank's clock, so one rank answers for all.
  bool pays_after_epoch(int epoch, double now_s) const;

  /// One of info.step begins. Where `info` calls this step the best, it is the best from now on; otherwise
  /// what `info` says of the best is replaced by best().
  void begin(checkpoint::CheckpointInfo& info, double now_s);
  /// What has become of the one that was begun. fail() returns whether that is news: when the same one is
  /// tried again and fails for the same reason, it is not. Then the best is the one before it again.
  /// `took_s`: to copy the state and to write it.
  void succeed(double took_s = 0);
  bool fail(const std::string& reason);

  std::int64_t begun_step() const { return begun_step_; }  ///< 0: none is being written.
  bool begun_is_best() const { return best_.step == begun_step_; }
  std::int64_t saved_step() const { return saved_step_; }  ///< Of the newest that is there; 0: none.

  /// The best whose checkpoint is there or being written.
  const checkpoint::BestSoFar& best() const { return best_; }
  /// Why the newest checkpoint is missing; empty when it is there.
  const std::string& problem() const { return problem_; }

  /// What an earlier part of the run has left: the checkpoint of `step`, and its best.
  void go_on_from(std::int64_t step, const checkpoint::BestSoFar& best);

 private:
  bool ends_interval(int epoch) const;

  Interval every_;
  double most_share_;
  double last_s_;      // when the last one was begun
  double took_s_ = 0;  // the newest that is there
  std::int64_t begun_step_ = 0;
  std::int64_t saved_step_ = 0;
  checkpoint::BestSoFar best_;
  checkpoint::BestSoFar best_before_;  // what is the best again should best_ fail
  std::string problem_;
};

}  // namespace dtrain::state
