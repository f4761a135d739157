#include "train/recovery/checkpoints.hpp"

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

#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::train {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);
constexpr double kSilence_s = 600;  ///< A part that does not grow for so long is not waited for.
constexpr double kGrace_s = 30;     ///< For a checkpoint that is being written when the run fails.

/// The training goes first where cores are short.
void run_behind() {
  constexpr int kNiceness = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNiceness);
}

Interval interval_of(const std::string& text) {
  return text == "end" ? Interval{} : parse_interval(text, "--checkpoint-every");
}

}  // namespace

Checkpoints::Checkpoints(const RunConfig& config, std::filesystem::path folder, Job& job,
                         h5::Library& library, SpanSink& sink, const Log& log, Tell tell)
    : folder_(std::move(folder)),
      job_(job),
      library_(library),
      sink_(sink),
      log_(log),
      tell_(std::move(tell)),
      every_(interval_of(config.output.checkpoint_every)),
      keep_(config.output.keep),
      last_s_(steady_s()),
      copy_(job) {}

Checkpoints::~Checkpoints() {
  if (std::uncaught_exceptions() > 0) given_up_ = true;
  if (writing_.joinable()) writing_.join();
}

bool Checkpoints::asked_by_clock() const {
  return every_.unit == Interval::Unit::seconds && job_.rank() == 0 && steady_s() - last_s_ >= every_.count;
}

bool Checkpoints::due_after_step(std::int64_t step) const {
  return every_.unit == Interval::Unit::steps && step % static_cast<std::int64_t>(every_.count) == 0;
}

bool Checkpoints::due_after_epoch(int epoch) const {
  return every_.unit == Interval::Unit::epochs && epoch % static_cast<std::int64_t>(every_.count) == 0;
}

void Checkpoints::save(const parallel::StateView& state, checkpoint::CheckpointInfo info) {
  const ScopedSpan span(sink_, Phase::checkpoint, "checkpoint");
  wait();
  if (info.best.step == info.step) {
    best_before_ = std::exchange(best_, info.best);
  } else {
    info.best = best_;
  }
  copy_.take(state, std::move(info));
  write();
}

void Checkpoints::finish(const parallel::StateView& state, const checkpoint::CheckpointInfo& info) {
  wait();
  if (saved_step_ != info.step) save(state, info);
  wait();
}

void Checkpoints::give_up() {
  given_up_ = true;
  if (writing_.joinable()) writing_.join();
}

void Checkpoints::give_up_when_written() noexcept {
  if (!writing_.joinable()) return;
  const checkpoint::Saving saving(folder_, begun_step_);
  const double end_s = steady_s() + kGrace_s;
  while (saving.is_open() && steady_s() < end_s) std::this_thread::sleep_for(kPause);
  give_up();
}

void Checkpoints::write() {
  last_s_ = steady_s();
  begun_step_ = copy_.info().step;
  const checkpoint::Saving saving(folder_, begun_step_);
  std::string refusal;
  if (job_.rank() == 0) {
    try {
      saving.begin();
    } catch (const Error& error) {
      refusal = error.what();
    }
  }
  outcome_ = job_.world().broadcast(refusal, 0);  // and the folder is there
  if (!outcome_.empty()) return;
  std::vector<int> writers;
  for (const auto writer : job_.world().all_gather(static_cast<std::int64_t>(copy_.writer()))) {
    if (writer >= 0) writers.push_back(static_cast<int>(writer));
  }
  written_ = false;
  writing_ = std::thread([this, saving, writers = std::move(writers)] {
    run_behind();
    write_behind(saving, writers);
    written_ = true;
  });
}

void Checkpoints::write_behind(const checkpoint::Saving& saving, const std::vector<int>& writers) {
  const double start_s = steady_s();
  if (copy_.writer() >= 0) saving.leave_part(copy_.writer(), copy_.references(), library_);
  if (job_.rank() == 0) {
    try {
      saving.commit(copy_.info(), saving.await_parts(writers, kSilence_s, given_up_));
      if (is_best()) checkpoint::mark_best(folder_, copy_.info().step);
      checkpoint::remove_old(folder_, keep_);
    } catch (const std::exception& error) {
      outcome_ = error.what();
      saving.abandon();
    }
  }
  seconds_ = steady_s() - start_s;
}

// The ranks ask each other again and again: a wait for rank 0, which ends last, in one call would be taken
// for a collective that hangs.
void Checkpoints::await_writer() {
  try {
    auto pause = std::chrono::milliseconds(1);
    while (job_.world().max(static_cast<std::int64_t>(written_ ? 0 : 1)) != 0) {
      job_.groups().check_deaths();
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
  if (begun_step_ == 0) return;
  if (writing_.joinable()) await_writer();
  const std::string failure = job_.world().broadcast(outcome_, 0);
  outcome_.clear();
  if (!failure.empty()) {
    note_failure(failure);
  } else {
    saved_step_ = begun_step_;
    problem_.clear();
    if (job_.rank() == 0)
      tell_("checkpoint", fmt::format("step {} written in {:.3f} s", saved_step_, seconds_));
  }
  begun_step_ = 0;
}

void Checkpoints::note_failure(const std::string& failure) {
  if (is_best()) best_ = best_before_;
  const std::string before =
      std::exchange(problem_, fmt::format("the checkpoint of step {} is missing: {}", begun_step_, failure));
  if (problem_ == before) return;  // the last step's was tried again at the end
  tell_("checkpoint_failed", problem_);
  if (job_.rank() == 0) log_.warn(problem_);
}

}  // namespace dtrain::train
