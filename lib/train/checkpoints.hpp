#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "checkpoint/writer.hpp"
#include "core/log.hpp"
#include "core/span_sink.hpp"
#include "h5/library.hpp"
#include "train/config.hpp"
#include "train/interval.hpp"
#include "train/job.hpp"
#include "train/saved_state.hpp"

namespace dtrain::train {

/// A run's checkpoints: a copy of the state is taken between two steps and written behind the training, each
/// rank its share; rank 0 makes the checkpoint whole when all shares are there, and removes old ones. At most
/// one is being written: the next waits for it. One that fails is removed and reported, and the run goes on.
/// Every call is made by all ranks alike.
class Checkpoints {
 public:
  /// What happened, for the rank's events.
  using Tell = std::function<void(std::string_view kind, std::string_view detail)>;
  /// Below `folder`. All are borrowed.
  Checkpoints(const RunConfig& config, std::filesystem::path folder, Job& job, h5::Library& library,
              SpanSink& sink, const Log& log, Tell tell);
  ~Checkpoints();  ///< Waits for what is being written, unless an exception unwinds: then it is given up.
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Whether by this rank's clock one is due: rank 0 answers for all, in the step's message.
  bool asked_by_clock() const;
  /// Whether one is due by number after this step, or at the end of this epoch.
  bool due_after_step(std::int64_t step) const;
  bool due_after_epoch(int epoch) const;
  /// Whether states are written as soon as they are the best, or kept in memory until the end.
  bool only_at_the_end() const { return every_.unit == Interval::Unit::never; }

  enum class Mark { none, best };
  void save(const TrainingState& state, const checkpoint::CheckpointInfo& info, Mark mark);

  /// The best so far: written now or kept until finish(), see only_at_the_end().
  void save_best(const TrainingState& state, const checkpoint::CheckpointInfo& info);

  /// Writes the last state, and the best if that is another and not written yet; returns when both are there.
  void finish(const TrainingState& state, const checkpoint::CheckpointInfo& info);

  /// Returns when nothing is being written any more. Throws Error (exit code 5) when a rank is lost
  /// meanwhile, whose part would never come.
  void wait();

  /// Ends what is being written without the others; nothing else is called afterwards.
  void give_up();

  /// Why a checkpoint of this run is missing; empty when none is.
  const std::string& problem() const { return problem_; }

 private:
  void await_writer();
  void write(const SavedState& state, Mark mark);
  void write_behind(const SavedState& state, const checkpoint::Saving& saving,
                    const std::vector<int>& writers, Mark mark);

  std::filesystem::path folder_;
  Job& job_;
  h5::Library& library_;
  SpanSink& sink_;
  const Log& log_;
  Tell tell_;
  Interval every_;
  int keep_;
  double limit_s_;
  double last_s_;    // when the last one was begun
  SavedState copy_;  // what is being written
  SavedState best_;  // what is kept until the end
  std::atomic<bool> given_up_{false};
  std::atomic<bool> written_{false};  // the thread is at its end
  std::thread writing_;
  std::string outcome_;          // of the thread: why it failed; read after it has ended
  double seconds_ = 0;           // of the thread
  std::int64_t saved_step_ = 0;  // of the newest that was begun
  std::string problem_;
};

}  // namespace dtrain::train
