#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "checkpoint/writer.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/span_sink.hpp"
#include "h5/library.hpp"
#include "state/checkpoint_policy.hpp"
#include "state/interval.hpp"
#include "state/ranks.hpp"
#include "state/saved_state.hpp"

namespace dtrain::state {

/// A run's checkpoints: a copy of the state is taken between two steps and written behind the training, each
/// rank its share; rank 0 makes the checkpoint whole when all shares are there, and removes old ones. At most
/// one is being written: the next waits for it. One that fails is removed and reported, and the run goes on.
/// The best is written as soon as there is one, so that a run that ends badly leaves it.
/// Every call is made by all ranks alike.
class Checkpoints {
 public:
  /// What happened, for the rank's events.
  using Tell = std::function<void(std::string_view kind, std::string_view detail)>;
  struct Config {
    std::filesystem::path folder;  ///< Below which they lie.
    Interval every;                ///< Never: at the end only.
    double most_share = 0;         ///< See CheckpointPolicy.
    int keep = 3;                  ///< That stay, the best not counted.
  };
  /// `library`, `sink` and `log` are borrowed.
  Checkpoints(Config config, const Ranks& ranks, h5::Library& library, SpanSink& sink, const Log& log,
              Tell tell);
  ~Checkpoints();  ///< Waits for what is being written, unless an exception unwinds: then it is given up.
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Whether by this rank's clock one is due: rank 0 answers for all, in the step's message.
  bool asked_by_clock() const;
  /// The same at the end of an epoch, see CheckpointPolicy::pays_after_epoch.
  bool asked_after_epoch(int epoch) const;
  /// See CheckpointPolicy.
  bool due_after_step(std::int64_t step) const { return policy_.due_after_step(step); }
  bool due_after_epoch(int epoch) const { return policy_.due_after_epoch(epoch); }
  /// Where `info` calls this step the best, `best` points to it as soon as it is whole. Otherwise what `info`
  /// says of the best is replaced by best().
  void save(const parallel::StateView& state, checkpoint::CheckpointInfo info);
  /// The two halves of save(), between which a rank records what must not be missing beside the checkpoint:
  /// the state is copied, and then written behind the training.
  void take(const parallel::StateView& state, checkpoint::CheckpointInfo info);
  void write();

  /// The best whose checkpoint is there or being written. When that one cannot be written, the one before it
  /// is the best again.
  const checkpoint::BestSoFar& best() const { return policy_.best(); }
  /// What an earlier part of the run has left: the checkpoint of `step`, and its best.
  void go_on_from(std::int64_t step, const checkpoint::BestSoFar& best) { policy_.go_on_from(step, best); }

  /// Writes the last state unless that is done, once more where it failed; returns when it is there.
  void finish(const parallel::StateView& state, const checkpoint::CheckpointInfo& info);

  /// Returns when nothing is being written any more. Throws Error (exit code 5) when a rank is lost
  /// meanwhile, whose part would never come.
  void wait();

  /// Whether a checkpoint has been begun that is neither whole nor abandoned, as far as this rank sees. Not
  /// collective.
  bool is_open() const noexcept;

  /// Ends what is being written without the others; nothing else is called afterwards.
  void give_up();
  /// The same where this rank fails and the others live: what is being written has some time to become whole.
  /// Not collective.
  void give_up_when_written() noexcept;

  /// Why the newest checkpoint is missing; empty when it is there.
  const std::string& problem() const { return policy_.problem(); }

 private:
  void await_writer();
  void write_behind(const checkpoint::Saving& saving, const std::vector<int>& writers);
  void tidy_up();
  void tell_of_links();

  Config config_;
  Ranks ranks_;
  h5::Library& library_;
  SpanSink& sink_;
  const Log& log_;
  Tell tell_;
  CheckpointPolicy policy_;
  SavedState copy_;  // what is being written
  std::atomic<bool> given_up_{false};
  std::atomic<bool> written_{false};  // the thread is at its end
  std::thread writing_;
  std::optional<Error> outcome_;  // of the thread: why it failed; read after it has ended
  // Of the thread, on rank 0: what went wrong with the links or with old checkpoints, the new one being
  // there.
  std::optional<Error> untidy_;
  std::string untidy_told_;        // of untidy_, the newest that was told
  bool best_is_unlinked_ = false;  // of the thread: the best is whole, and `best` leads elsewhere
  double seconds_ = 0;             // of the thread
  double held_s_ = 0;              // of the training, while the state was copied
};

}  // namespace dtrain::state
