#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace dtrain::doctor {

/// The name of what is being done, for the thread that waits for it.
using Step = std::atomic<const char*>;

/// What `work` returns, or nothing when that takes more than `limit_s`: a file system that hangs does not
/// take the caller along. The work then goes on in a thread that is left behind, so it owns all that it uses;
/// `stuck_in` is the step it had named last. What the work throws ends the process.
template <typename Result>
std::optional<Result> within(double limit_s, std::function<Result(Step&)> work, const char*& stuck_in) {
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result> result;
    Step step{"start"};
  };
  const auto state = std::make_shared<State>();
  std::thread([state, work = std::move(work)] {
    Result result = work(state->step);
    const std::scoped_lock lock(state->mutex);
    state->result = std::move(result);
    state->done.notify_all();
  }).detach();
  std::unique_lock lock(state->mutex);
  state->done.wait_for(lock, std::chrono::duration<double>(limit_s),
                       [&] { return state->result.has_value(); });
  stuck_in = state->step;
  return state->result;
}

}  // namespace dtrain::doctor
