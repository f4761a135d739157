#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/slice.hpp"
#include "data/loader.hpp"
#include "optim/schedule.hpp"
#include "parallel/step/ownership.hpp"
#include "parallel/step/pieces.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::train {

/// Hands out what is to be done: one step after the other, each with the micro-batches of this rank's copy of
/// the model, their sample ids, and the learning rate. A pure function of its arguments and of own(), so that
/// all ranks and a resumed run find the same plan. The loader reads from the same list.
class WorkPlan {
 public:
  struct Facts {
    parallel::Pieces pieces;
    int data_rank = 0;
    std::vector<std::int64_t> lengths = {};  ///< Of the samples; empty where all are alike.
    optim::ScheduleConfig schedule = {};
    std::int64_t total_steps = 0;  ///< Of the run, earlier parts included.
    std::uint64_t seed = 1;
    /// Whether the run does something else between this step and the next, such as a validation. Nothing is
    /// read ahead then. Empty: it does not.
    std::function<bool(std::int64_t step)> pauses_after = {};
    /// Strategy::take_work(), where ranks take micro-batches at their own pace: plans then have one each, and
    /// a plan without any, which pauses, ends the steps between two pauses. Empty: they are dealt beforehand.
    std::function<std::optional<parallel::WorkUnit>(const parallel::WorkRange& steps)> take = {};
    /// PrivateTraining::draws(), where the strategy draws the samples of each step of an epoch itself; a step
    /// may have any number of them. Empty: an epoch uses each sample once.
    std::function<std::vector<std::vector<std::int64_t>>(int epoch)> draws = {};
    /// Where the samples belong to clients: what this rank does in a round, which is a step. Pieces::samples
    /// is then that of a step. Empty: they belong to none.
    std::function<parallel::StepPlan(std::int64_t round)> round = {};
    /// And what all ranks together do in it. Empty where `round` is.
    std::function<parallel::StepPlan(std::int64_t round)> whole_round = {};
  };
  explicit WorkPlan(Facts facts) : facts_(std::move(facts)) {}

  /// How many batches a step takes. One of several has the number of its last batch, as if that were a step:
  /// what counts steps of the run or of an epoch counts batches. The micro-batches of its batch b have the
  /// indices from b x Pieces::micro_batches on.
  struct StepSize {
    std::int64_t batches = 1;  ///< At most: none crosses an epoch's end or StepPlan::pauses.
    double rate = 1;           ///< What the schedule's learning rate is multiplied by.
  };
  /// Plans `epoch` (from 1), the first `done` steps of which are done already, up to the run's last step.
  void begin_epoch(int epoch, std::int64_t done, const StepSize& size);
  void begin_epoch(int epoch, std::int64_t done) { begin_epoch(epoch, done, {}); }

  /// From step `first` of the run on, until another call, data rank r computes the micro-batches owned[r];
  /// before the first call as evenly as can be. All ranks call it alike. Throws Error where next() or a
  /// loader has come to that step already.
  void own(std::int64_t first, parallel::Ownership owned);

  /// The next step, or null where the epoch or the run has no further one. Valid until begin_epoch().
  const parallel::StepPlan* next();

  /// Steps of the epoch, those done already included.
  std::int64_t steps() const { return steps_; }

  /// The micro-batches of all steps that begin_epoch() has planned, in the order of next(); where they are
  /// taken, those that next() has returned by then.
  data::Loader::RequestStream requests() const;

  /// data::sample_hash() of the samples that all ranks together use in the epoch's first `steps` steps, as
  /// often as they do.
  std::uint64_t hash_of_first(std::int64_t steps) const;

 private:
  void draw(int epoch);
  Range piece(std::int64_t step_of_epoch, int index) const;
  bool pauses_after(std::int64_t step_of_epoch) const;
  parallel::StepPlan plan_of(std::int64_t step_of_epoch, std::int64_t batches) const;
  parallel::StepPlan empty_plan(std::int64_t step_of_epoch) const;
  std::optional<parallel::MicroBatch> micro_batch(std::int64_t step_of_epoch, int index) const;
  const parallel::StepPlan* take_next();

  using Steps = std::vector<parallel::StepPlan>;
  /// The epoch's steps, shared with the thread of a loader.
  struct Planned {
    std::mutex mutex;  // guards micro-batches of steps that next() has not returned, and what follows
    Steps steps;
    std::int64_t read = 0;  // the last step that a loader has looked at
  };
  void connect(Steps& steps) const;
  std::shared_ptr<const parallel::Ownership> owned_in(std::int64_t step) const;

  Facts facts_;
  StepSize size_;                    // of the epoch
  std::int64_t first_step_ = 0;      // updates before the epoch
  std::int64_t steps_ = 0;           // of the epoch
  std::vector<std::int64_t> order_;  // of the epoch's samples
  std::vector<std::int64_t> ends_;   // of the steps in order_, where they are drawn; else empty
  std::shared_ptr<Planned> plans_ = std::make_shared<Planned>();
  std::size_t next_ = 0;                                                      // of plans_
  std::map<std::int64_t, std::shared_ptr<const parallel::Ownership>> owned_;  // by the first step
  // Where they are taken:
  struct Taken {
    std::int64_t step = 0;  // that a loader counts, from 0
    parallel::MicroBatch micro_batch;
  };
  std::int64_t next_step_ = 0;  // of the epoch, the first that is not done
  parallel::StepPlan taken_;    // the newest
  std::shared_ptr<std::deque<Taken>> unread_ = std::make_shared<std::deque<Taken>>();
};

}  // namespace dtrain::train
