#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "train/recovery/job_ranks.hpp"

namespace dtrain::train {

/// What a rank sees when it waits for one that is gone.
inline Error lost_rank() { return {"rank 1 is gone", {.subject = "step 8", .code = ExitCode::lost_rank}}; }

/// The ranks of a job as one of them sees them, in one process: a test says which are lost, and when.
class FakeRanks final : public JobRanks {
 public:
  explicit FakeRanks(int working, int my_rank = 0) : rank_(my_rank), working_(working) {}

  /// These are gone, and the others learn of it when they meet.
  void lose(const std::vector<int>& ranks) { gone_.insert(gone_.end(), ranks.begin(), ranks.end()); }
  /// The same of ranks that waited.
  void lose_spares(const std::vector<int>& ranks) {
    lose(ranks);
    waited_ += static_cast<int>(ranks.size());
  }
  /// Becomes a spare beside `working` others.
  void be_spare() { is_spare_ = true; }

  bool recovers = true;
  bool others_hold_state = true;
  std::function<void()> while_calling_spares;        // may lose() ranks and throw, once
  std::deque<std::optional<comm::Dismissal>> calls;  // what a spare's waits end with
  std::vector<double> limits_s;                      // of its meetings
  std::vector<std::string> done;                     // what this rank was asked to do, in order

  bool can_recover() const override { return recovers; }
  bool is_spare() const override { return is_spare_; }
  int rank() const override { return rank_; }
  int at_work() const override { return working_; }

  void keep_spares(int count) override {
    done.push_back("keep " + std::to_string(count));
    working_ -= count;
    waiting_ += count;
  }
  std::optional<comm::Dismissal> wait_for_call() override {
    done.emplace_back("wait");
    auto call = calls.at(0);
    calls.pop_front();
    return call;
  }
  void dismiss_spares(int exit_code, std::string_view why) noexcept override {
    done.push_back("dismiss " + std::to_string(exit_code) + " " + std::string(why));
  }
  comm::Loss leave_lost_behind(bool holds_state, double limit_s) override {
    limits_s.push_back(limit_s);
    done.emplace_back(holds_state ? "meet with state" : "meet");
    comm::Loss loss{.gone = std::exchange(gone_, {}), .all_hold_state = holds_state && others_hold_state};
    working_ -= static_cast<int>(loss.gone.size()) - std::exchange(waited_, 0);
    return loss;
  }
  void call_spares(int wanted, double limit_s) override {
    limits_s.push_back(limit_s);
    done.push_back("call up to " + std::to_string(wanted));
    if (const auto happens = std::exchange(while_calling_spares, nullptr)) happens();
    const int called = std::clamp(wanted - working_, 0, waiting_ + (is_spare_ ? 1 : 0));
    if (called > 0) is_spare_ = false;
    waiting_ = std::max(0, waiting_ - called);
    working_ += called;
  }

 private:
  int rank_;
  int working_;
  int waiting_ = 0;
  bool is_spare_ = false;
  std::vector<int> gone_;
  int waited_ = 0;  // of those
};

}  // namespace dtrain::train
