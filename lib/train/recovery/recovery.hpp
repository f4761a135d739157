#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/watch/stop_signals.hpp"
#include "parallel/pipeline/stage_moves.hpp"
#include "record/rows.hpp"
#include "train/config/config.hpp"
#include "train/recovery/job_ranks.hpp"

namespace dtrain::train {

/// Ranks that a run goes on without.
struct LostRanks {
  std::vector<int> ranks;  ///< In MPI_COMM_WORLD at the start.
  double noticed_s = 0;    ///< steady_s()
  double agreed_s = 0;     ///< The ranks that are left know of each other.

  std::string in_words() const;  ///< `rank 1`, `ranks 1, 3`.
};

/// What a run keeps from one part of it to the next, a part being what one set of ranks trains until it loses
/// some. The survivors meet and save what they hold (leave_lost_behind()), then take their places in the next
/// part (regroup()). A rank that had nothing to save comes to regroup() at once. Borrows `ranks`.
class Recovery {
 public:
  Recovery(const RunConfig& config, JobRanks& ranks);

  /// Whether the run goes on after a loss: MPI can, and the options want it.
  bool is_on() const { return is_on_; }
  /// Whether it is on and there is another rank to lose.
  bool may_lose_ranks() const { return is_on_ && ranks_.at_work() > 1; }

  /// The loss that the part that trains now goes on after; empty where there was none before it.
  const std::optional<LostRanks>& behind() const { return behind_; }
  /// The first step after that loss is done on this rank. Where another loss comes before, the next part goes
  /// on after both.
  void recovered() { has_recovered_ = true; }
  /// Whether an earlier part of this process trained before this one.
  bool goes_on() const { return behind_.has_value() || has_moved_; }

  /// The part ends with a checkpoint, as one that is asked to stop, so that the layers of a pipeline lie by
  /// these costs in the next. All ranks call it.
  void move_layers(parallel::StageCosts costs) { moves_ = std::move(costs); }
  /// Whether move_layers() was called in the part that trains now.
  bool moves() const { return moves_.has_value(); }
  /// After a part that has ended: whether another is to follow because layers move; begins that one.
  bool begin_moved();
  /// What move_layers() was last given; empty: nothing yet.
  const parallel::StageCosts& stage_costs() const { return stage_costs_; }

  /// Listens for requests to stop, from the first call to the end of the run: one that comes while ranks meet
  /// after a loss is kept for the next part.
  const comm::StopSignals& signals(comm::StopSignals::Voice voice);

  double begun_s() const { return begun_s_; }  ///< When the first part did; steady_s().

  /// Of all parts so far, where their ranks were; on some ranks perhaps nothing.
  const std::vector<record::TopologyRow>& topology() const { return topology_; }
  void keep(std::vector<record::TopologyRow> topology) { topology_ = std::move(topology); }

  /// What the survivors do before they leave the part of the run: save what they hold. `all_hold_state`: what
  /// each of them said of itself.
  using Save = std::function<void(const LostRanks& lost, bool all_hold_state)>;

  enum class Files { closed, open };
  /// After an error that lost ranks may have caused: the survivors agree on the ranks that are left, and
  /// save. When another rank is lost meanwhile they do both again. `holds_state`: whether this rank has what
  /// it worked on as it was before the loss. Returns false where may_lose_ranks() is false, and where no rank
  /// is gone. Collective over the survivors that reach it, or regroup(), which counts as holding nothing.
  /// `files`: whether a survivor may come late because it is still writing a checkpoint.
  bool leave_lost_behind(bool holds_state, const Save& save, Files files = Files::closed);
  /// Whether that was done, and regroup() was not yet.
  bool has_left() const { return left_.has_value(); }

  /// Brings the survivors together, with spares in the places of the lost, until `wanted` ranks work or no
  /// spare is left; again, when more are lost meanwhile. Then begins the next part. Returns false where no
  /// rank is gone. Collective over the survivors and the spares.
  bool regroup(int wanted);

 private:
  bool meet(bool holds_state, double limit_s, LostRanks& lost, bool& all_hold_state);
  void leave_behind(LostRanks lost);

  JobRanks& ranks_;
  bool is_on_;
  double limit_s_;        // for all to come
  double files_limit_s_;  // the same while some of them write files
  std::optional<LostRanks> left_;
  std::optional<LostRanks> behind_;
  bool has_recovered_ = false;  // from what is behind
  std::vector<record::TopologyRow> topology_;
  std::optional<parallel::StageCosts> moves_;
  parallel::StageCosts stage_costs_;
  bool has_moved_ = false;
  std::optional<comm::StopSignals> signals_;
  double begun_s_;
};

}  // namespace dtrain::train
