#include "train/checkpoints.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::train {
namespace {

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
      limit_s_(config.comm.watchdog_s),
      last_s_(steady_s()),
      copy_(job),
      best_(job) {}

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

void Checkpoints::save(const TrainingState& state, const checkpoint::CheckpointInfo& info, Mark mark) {
  const ScopedSpan span(sink_, Phase::checkpoint, "checkpoint");
  wait();
  copy_.take(state, info);
  write(copy_, mark);
}

void Checkpoints::save_best(const TrainingState& state, const checkpoint::CheckpointInfo& info) {
  if (!only_at_the_end()) return save(state, info, Mark::best);
  best_.take(state, info);
}

void Checkpoints::finish(const TrainingState& state, const checkpoint::CheckpointInfo& info) {
  const bool is_best = best_.taken() && best_.info().step == info.step;
  if (saved_step_ != info.step) save(state, info, is_best ? Mark::best : Mark::none);
  wait();
  if (best_.taken() && !is_best) write(best_, Mark::best);
  wait();
}

void Checkpoints::give_up() {
  given_up_ = true;
  if (writing_.joinable()) writing_.join();
}

void Checkpoints::write(const SavedState& state, Mark mark) {
  last_s_ = steady_s();
  saved_step_ = state.info().step;
  const checkpoint::Saving saving(folder_, saved_step_);
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
  for (const auto writer : job_.world().all_gather(static_cast<std::int64_t>(state.writer()))) {
    if (writer >= 0) writers.push_back(static_cast<int>(writer));
  }
  written_ = false;
  writing_ = std::thread([this, &state, saving, writers = std::move(writers), mark] {
    run_behind();
    write_behind(state, saving, writers, mark);
    written_ = true;
  });
}

void Checkpoints::write_behind(const SavedState& state, const checkpoint::Saving& saving,
                               const std::vector<int>& writers, Mark mark) {
  const double start_s = steady_s();
  if (state.writer() >= 0) saving.leave_part(state.writer(), state.references(), library_);
  if (job_.rank() == 0) {
    try {
      saving.commit(state.info(), saving.await_parts(writers, limit_s_, given_up_));
      if (mark == Mark::best) checkpoint::mark_best(folder_, state.info().step);
      checkpoint::remove_old(folder_, keep_);
    } catch (const std::exception& error) {
      outcome_ = error.what();
      saving.abandon();
    }
  }
  seconds_ = steady_s() - start_s;
}

void Checkpoints::await_writer() {
  constexpr auto kPause = std::chrono::milliseconds(2);
  try {
    for (; !written_; std::this_thread::sleep_for(kPause)) job_.groups().check_deaths();
  } catch (...) {
    give_up();
    throw;
  }
  writing_.join();
}

void Checkpoints::wait() {
  if (saved_step_ == 0) return;
  const bool was_writing = writing_.joinable();
  if (was_writing) await_writer();
  const std::string failure = job_.world().broadcast(outcome_, 0);
  outcome_.clear();
  if (!failure.empty()) {
    const std::string before = std::exchange(
        problem_, fmt::format("the checkpoint of step {} is missing: {}", saved_step_, failure));
    if (problem_ == before) return;  // the last step's was tried again at the end
    tell_("checkpoint_failed", problem_);
    if (job_.rank() == 0) log_.warn(problem_);
  } else if (was_writing && job_.rank() == 0) {
    tell_("checkpoint", fmt::format("step {} written in {:.3f} s", saved_step_, seconds_));
  }
}

}  // namespace dtrain::train
