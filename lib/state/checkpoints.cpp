#include "state/checkpoints.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "comm/watch/shared_failure.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/shared_failure.hpp"

namespace dtrain::state {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);
constexpr double kSilence_s = 600;  ///< A writer that does not get on for so long is not waited for.
constexpr double kGrace_s = 30;     ///< For a checkpoint that is being written when the run fails.

/// The training goes first where cores are short.
void run_behind() {
  constexpr int kNiceness = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNiceness);
}

}  // namespace

Checkpoints::Checkpoints(Config config, const Ranks& ranks, h5::Library& library, SpanSink& sink,
                         const Log& log, Tell tell)
    : config_(std::move(config)),
      ranks_(ranks),
      library_(library),
      sink_(sink),
      log_(log),
      tell_(std::move(tell)),
      policy_(config_.every, steady_s(), config_.most_share),
      copy_(ranks.mesh.shape(), ranks.where(), ranks.groups.tensor()) {}

Checkpoints::~Checkpoints() {
  if (std::uncaught_exceptions() > 0) given_up_ = true;
  if (writing_.joinable()) writing_.join();
}

bool Checkpoints::asked_by_clock() const { return ranks_.rank() == 0 && policy_.due_at(steady_s()); }

bool Checkpoints::asked_after_epoch(int epoch) const {
  return ranks_.rank() == 0 && policy_.pays_after_epoch(epoch, steady_s());
}

void Checkpoints::save(const parallel::StateView& state, checkpoint::CheckpointInfo info) {
  take(state, std::move(info));
  write();
}

void Checkpoints::take(const parallel::StateView& state, checkpoint::CheckpointInfo info) {
  const ScopedSpan span(sink_, Phase::checkpoint, "checkpoint");
  wait();
  const double begun_s = steady_s();
  policy_.begin(info, begun_s);
  copy_.take(state.tensors(), std::move(info));
  held_s_ = steady_s() - begun_s;
}

void Checkpoints::finish(const parallel::StateView& state, const checkpoint::CheckpointInfo& info) {
  wait();
  if (policy_.saved_step() != info.step) save(state, info);
  wait();
}

bool Checkpoints::is_open() const noexcept {
  return writing_.joinable() && checkpoint::Saving(config_.folder, policy_.begun_step()).is_open();
}

void Checkpoints::give_up() {
  given_up_ = true;
  if (writing_.joinable()) writing_.join();
}

void Checkpoints::give_up_when_written() noexcept {
  if (!writing_.joinable()) return;
  const checkpoint::Saving saving(config_.folder, policy_.begun_step());
  const double end_s = steady_s() + kGrace_s;
  while (saving.is_open() && steady_s() < end_s) std::this_thread::sleep_for(kPause);
  give_up();
}

void Checkpoints::write() {
  const ScopedSpan span(sink_, Phase::checkpoint, "checkpoint");
  const double begun_s = steady_s();
  const checkpoint::Saving saving(config_.folder, policy_.begun_step());
  const auto refusal = failure_of([&] {
    if (ranks_.rank() == 0) saving.begin();
  });
  outcome_ = comm::first_failure(refusal, ranks_.world);
  if (outcome_) return;  // else the folder is there
  std::vector<int> writers;
  for (const auto writer : ranks_.world.all_gather(static_cast<std::int64_t>(copy_.writer()))) {
    if (writer >= 0) writers.push_back(static_cast<int>(writer));
  }
  written_ = false;
  writing_ = std::thread([this, saving, writers = std::move(writers)] {
    run_behind();
    write_behind(saving, writers);
    written_ = true;
  });
  held_s_ += steady_s() - begun_s;
}

void Checkpoints::write_behind(const checkpoint::Saving& saving, const std::vector<int>& writers) {
  const double start_s = steady_s();
  if (copy_.writer() >= 0) saving.leave_part(copy_.writer(), copy_.references(), library_);
  if (ranks_.rank() == 0) {
    outcome_ =
        failure_of([&] { saving.commit(copy_.info(), saving.await_parts(writers, kSilence_s, given_up_)); });
    if (outcome_) {
      saving.abandon();
    } else {
      tidy_up();
    }
  }
  seconds_ = steady_s() - start_s;
}

void Checkpoints::tidy_up() {
  const auto& info = copy_.info();
  const auto last = failure_of([&] { checkpoint::mark(config_.folder, checkpoint::kLast, info.step); });
  if (policy_.begun_is_best()) best_is_unlinked_ = true;
  std::optional<Error> other;
  if (best_is_unlinked_) {
    other = failure_of([&] { checkpoint::mark(config_.folder, checkpoint::kBest, info.best.step); });
    best_is_unlinked_ = other.has_value();
  }
  // Without the link remove_old() would take the best for one of the old.
  if (!best_is_unlinked_) other = failure_of([&] { checkpoint::remove_old(config_.folder, config_.keep); });
  untidy_ = last ? last : other;
}

void Checkpoints::tell_of_links() {
  const std::string before = std::exchange(untidy_told_, untidy_ ? untidy_->what() : "");
  if (!untidy_ || untidy_told_ == before) return;
  const auto text = fmt::format("the checkpoint of step {} is whole, but the folder is not in order: {}{}",
                                policy_.saved_step(), untidy_told_,
                                best_is_unlinked_ ? "; until then old ones are kept" : "");
  tell_("checkpoint_links", text);
  log_.warn(text);
}

// The ranks ask each other again and again: a wait for rank 0, which ends last, in one call would be taken
// for a collective that hangs.
void Checkpoints::await_writer() {
  try {
    auto pause = std::chrono::milliseconds(1);
    while (ranks_.world.max(static_cast<std::int64_t>(written_ ? 0 : 1)) != 0) {
      ranks_.groups.check_deaths();
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kPause);
    }
  } catch (...) {
    give_up();
    throw;
  }
  writing_.join();
}

void Checkpoints::wait() {
  if (policy_.begun_step() == 0) return;
  if (writing_.joinable()) await_writer();
  const auto failure = comm::first_failure(outcome_, ranks_.world);
  outcome_.reset();
  if (failure) {
    if (policy_.fail(failure->what())) {
      tell_("checkpoint_failed", policy_.problem());
      if (ranks_.rank() == 0) log_.warn(policy_.problem());
    }
    return;
  }
  policy_.succeed(held_s_ + seconds_);
  if (ranks_.rank() != 0) return;
  tell_("checkpoint", fmt::format("step {} written in {:.3f} s", policy_.saved_step(), seconds_));
  tell_of_links();
}

}  // namespace dtrain::state
