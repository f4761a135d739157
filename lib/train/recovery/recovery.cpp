#include "train/recovery/recovery.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/clock.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"

namespace dtrain::train {

std::string LostRanks::in_words() const { return numbered("rank", ranks); }

Recovery::Recovery(const RunConfig& config, JobRanks& ranks)
    : ranks_(ranks),
      is_on_(ranks.can_recover() && config.on_failure != "abort"),
      limit_s_(config.comm.timeout_s),
      files_limit_s_(config.files_limit_s()),
      begun_s_(steady_s()) {}

const comm::StopSignals& Recovery::signals(comm::StopSignals::Voice voice) {
  if (!signals_) signals_.emplace(voice);
  signals_->speak_as(voice);  // it may be the first rank now
  return *signals_;
}

bool Recovery::begin_moved() {
  if (!moves_) return false;
  stage_costs_ = *std::exchange(moves_, std::nullopt);
  has_moved_ = true;
  behind_.reset();
  return true;
}

/// Returns whether ranks are gone that were there at the last meeting; adds them to `lost`.
bool Recovery::meet(bool holds_state, double limit_s, LostRanks& lost, bool& all_hold_state) {
  const auto loss = ranks_.leave_lost_behind(holds_state, limit_s);
  if (loss.gone.empty()) return false;
  lost.ranks.insert(lost.ranks.end(), loss.gone.begin(), loss.gone.end());
  lost.agreed_s = steady_s();
  all_hold_state = loss.all_hold_state;
  return true;
}

bool Recovery::leave_lost_behind(bool holds_state, const Save& save, Files files) {
  if (!may_lose_ranks()) return false;
  LostRanks lost{.ranks = {}, .noticed_s = steady_s()};
  while (true) {
    try {
      bool all_hold_state = false;
      const double limit_s = files == Files::open ? files_limit_s_ : limit_s_;
      if (meet(holds_state, limit_s, lost, all_hold_state)) save(lost, all_hold_state);
      break;
    } catch (const Error& next) {
      if (next.code() != ExitCode::lost_rank) throw;
    }
  }
  if (!lost.ranks.empty()) left_ = std::move(lost);
  return has_left();
}

void Recovery::leave_behind(LostRanks lost) {
  if (behind_ && !has_recovered_) {
    lost.ranks.insert(lost.ranks.begin(), behind_->ranks.begin(), behind_->ranks.end());
    lost.noticed_s = behind_->noticed_s;
  }
  behind_ = std::move(lost);
  has_recovered_ = false;
}

bool Recovery::regroup(int wanted) {
  bool meets = !has_left();
  const bool may_wait_for_files = meets;  // the others save what they hold
  // A spare does not know what the others are busy with.
  const double meeting_limit_s = ranks_.is_spare() ? files_limit_s_ : limit_s_;
  auto lost = std::exchange(left_, std::nullopt).value_or(LostRanks{.ranks = {}, .noticed_s = steady_s()});
  while (true) {
    try {
      bool all_hold_state = false;
      if (meets && !meet(false, meeting_limit_s, lost, all_hold_state)) return false;
      ranks_.call_spares(wanted, may_wait_for_files ? files_limit_s_ : limit_s_);
      leave_behind(std::move(lost));
      stage_costs_ = {};  // of other ranks
      moves_.reset();
      return true;
    } catch (const Error& next) {
      if (next.code() != ExitCode::lost_rank) throw;
      meets = true;
    }
  }
}

}  // namespace dtrain::train
