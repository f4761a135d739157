#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/traffic.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "federated/partition.hpp"
#include "h5/library.hpp"
#include "parallel/step/step.hpp"
#include "record/rank_recorder.hpp"
#include "record/results_writer.hpp"
#include "record/step_clock.hpp"
#include "record/step_curves.hpp"
#include "record/tensorboard_writer.hpp"
#include "record/trace_writer.hpp"
#include "train/config/config.hpp"
#include "train/loop/evaluation.hpp"
#include "train/loop/site_scores.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// The moment from which a run's times count, on both clocks.
struct RunStart {
  std::int64_t steady_ns = 0;
  std::string utc;
};

/// What the steps of an epoch add up to.
struct EpochSums {
  parallel::StepTotals own;                  ///< This rank's steps.
  parallel::StepTotals total;                ///< All ranks'.
  record::PhaseTotals phases;                ///< This rank's time.
  std::uint64_t sample_hash = 0;             ///< Of the samples this rank used.
  std::int64_t samples = 0;                  ///< Over all ranks.
  double earlier_s = 0;                      ///< That an earlier part of the run has trained in this epoch.
  double learning_rate = 0;                  ///< Of the last step.
  std::vector<std::int64_t> staleness = {};  ///< StepOutcome::staleness of all.
  std::optional<parallel::RoundOutcome> round = {};  ///< The epoch is this round of federated training.
  std::vector<comm::MovedBytes> traffic = {};        ///< Between this rank and each other, by rank.

  /// Adds what steps came to.
  void add(const parallel::StepOutcome& outcome) {
    own.add_samples(outcome.own);
    total.add_samples(outcome.total);
  }

  /// Adds a step. `hash`: data::sample_hash() of the samples that this rank counts.
  void add(const parallel::StepOutcome& outcome, const record::PhaseTotals& step_phases, double rate,
           std::uint64_t hash) {
    add(outcome);
    phases += step_phases;
    sample_hash += hash;
    learning_rate = rate;
    if (outcome.round) round = outcome.round;
    staleness.resize(std::max(staleness.size(), outcome.staleness.size()));
    for (std::size_t late = 0; late < outcome.staleness.size(); ++late)
      staleness[late] += outcome.staleness[late];
  }
};

/// All that a run leaves in its folder: results.h5, this rank's live file, curves, trace, checkpoints; and
/// the lines it prints. Rank 0 writes what belongs to the whole run.
class RunOutputs {
 public:
  /// `trace` may be null. `kept`: what counts of an earlier part of the run, whose files are continued;
  /// `earlier`: where the ranks of earlier parts were.
  /// Throws Error (exit code 2) when the folder cannot be written.
  RunOutputs(const RunConfig& config, Job& job, const Workload& workload, h5::Library& library,
             record::TraceWriter* trace, const RunStart& start, const std::optional<record::Kept>& kept,
             std::vector<record::TopologyRow> earlier, const Log& log);

  /// What is traced from now on is of this step; 0: of none.
  void trace_step(std::int64_t step) {
    if (trace_ != nullptr) trace_->begin_step(step);
  }

  /// The clients of a federated run.
  void clients(const federated::Partition& partition, const Workload& workload);

  /// After each step. With StepOutcome::late its row is written when the next call brings what it came to, or
  /// settled() does.
  void step(const parallel::StepPlan& plan, int epoch, const parallel::StepOutcome& outcome,
            const record::PhaseTotals& phases);
  /// What Strategy::settle() says of the last step.
  void settled(const parallel::StepOutcome& outcome);

  /// What the tensors of an epoch's training took at most, of which `held_bytes` were there before it: events
  /// of this rank, of all of them and of the rest.
  void memory(int epoch, std::int64_t peak_bytes, std::int64_t held_bytes);

  /// Writes this rank's rows to its file now, not within a second: before the recorded work counts as done.
  void flush() { recorder_.flush(); }

  /// A validation, after `step` steps. One within an epoch has a line of its own. Collective.
  enum class Line { printed, none };
  void validation(std::int64_t step, int epoch, const EvaluationResult& result, Line line);

  /// Before an epoch's row: what has been released up to here. The ledger is on the disk afterwards.
  void privacy(const record::PrivacyRow& row);

  /// After each private step, and before anything else of it is written: all that was released. The file
  /// is there when it returns, and synced to the disk once a second.
  void ledger(const std::string& lines);

  /// The rows of /client_privacy, at the end.
  void client_privacy(std::vector<record::ClientPrivacyRow> rows) {
    if (results_ != nullptr) results_->client_privacy(std::move(rows));
  }

  /// After each epoch and its validation; all ranks' rows are in their files then. Collective.
  void epoch(int epoch, const EpochSums& sums, const std::optional<EvaluationResult>& validation);

  /// Something that happened on this rank.
  void event(std::string_view kind, std::string_view detail) { recorder_.event(kind, detail); }

  /// Writes what each rank of this node has communicated last to ranks/flights-NNNNN.csv, where no other rank
  /// has done so, and flushes this rank's file.
  void flights();

  /// Where all ranks have been, with those in `lost` gone now.
  std::vector<record::TopologyRow> topology_without(const std::vector<int>& lost) const;

  /// The same by the owners of the rows; before test().
  void test_sites(const std::vector<std::string>& sites, const std::vector<SiteScore>& scores);

  /// The same by client; before test().
  void test_clients(const record::Clients& clients, const std::vector<SiteScore>& scores);

  /// Of the checkpoint of `step`, at the end of `epoch`.
  void test(const EvaluationResult& result, std::int64_t step, std::int64_t epoch);

  /// Closes everything; the run has ended like this, or is still `running`, in its next part. Returns why
  /// results.h5 does not say so, the same on every rank. Collective.
  std::optional<Error> finish(record::Status status);

 private:
  void warn_of_lost_results();  // rank 0: once, when the disk is full

  /// What is known of a step whatever it comes to.
  struct StepMade {
    std::int64_t number = 0;
    int epoch = 0;
    double learning_rate = 0;
    record::PhaseTotals phases;
    std::int64_t ended_ns = 0;
  };
  void write(const StepMade& made, const parallel::StepOutcome& outcome);

  const RunConfig& config_;
  const char* period_;  // what a row of /epochs is: an epoch or a round
  Job& job_;
  h5::Library& library_;
  record::TraceWriter* trace_;
  const Log& log_;
  std::string folder_;
  std::int64_t start_ns_;
  double flops_per_sample_;
  plan::MemoryEstimate estimated_;  // of this rank
  Scoring scoring_;
  std::vector<models::ExtraColumns::Column> extra_columns_;  // of /epochs, the model's own
  std::vector<std::string> classes_;                         // their names
  bool warned_ = false;
  std::vector<record::TopologyRow> topology_;
  record::RankRecorder recorder_;
  std::unique_ptr<record::ResultsWriter> results_;          // rank 0
  std::unique_ptr<record::TensorBoardWriter> tensorboard_;  // rank 0, when asked for
  std::optional<record::StepCurves> curves_;                // in it
  double since_agreed_s_ = 0;                               // that steps took
  std::optional<double> ledger_synced_s_ = {};
  bool ledger_waits_ = false;          // to be synced
  std::optional<StepMade> late_;       // whose outcome is not known yet
  double epsilon_ = record::kNoValue;  // of the newest row of /privacy
};

/// The ledger that a part of the run has left in `folder`; nothing where there is none. Throws Error (exit
/// code 4) where it is damaged.
std::optional<std::string> ledger_in(const std::string& folder);

/// `runs/NAME`, and in it the checkpoints.
std::string run_folder(const RunConfig& config);
std::string checkpoints_folder(const RunConfig& config);

}  // namespace dtrain::train
