#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "comm/emulation/slow_compute.hpp"
#include "comm/watch/stop_signals.hpp"
#include "comm/watch/stragglers.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "data/loader.hpp"
#include "h5/library.hpp"
#include "optim/schedule.hpp"
#include "parallel/step/pieces.hpp"
#include "record/progress_line.hpp"
#include "record/step_clock.hpp"
#include "record/trace_writer.hpp"
#include "state/checkpoints.hpp"
#include "state/resume_point.hpp"
#include "train/config/config.hpp"
#include "train/loop/evaluations.hpp"
#include "train/loop/model_selection.hpp"
#include "train/loop/planned_batches.hpp"
#include "train/loop/privacy_account.hpp"
#include "train/loop/replica.hpp"
#include "train/loop/run_outputs.hpp"
#include "train/loop/work_balance.hpp"
#include "train/loop/work_plan.hpp"
#include "train/recovery/recovery.hpp"
#include "train/recovery/survival.hpp"
#include "train/setup/clients.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// Algorithm 1 of the study this project grew from, on ranks that hold a model and a dataset: per epoch
/// train, evaluate, record, save; evaluate the best on the test split. Goes on where an earlier run stood,
/// and stops on request.
class Trainer {
 public:
  struct Recording {
    h5::Library& library;
    record::StepClock& clock;
    /// Called once, when nothing speaks against the run any more, before its first file; returns where to
    /// trace to (null: nowhere). Collective.
    std::function<record::TraceWriter*()> begin_files;
    RunStart start;
    double begun_s;  // when this process was, which may go on with an earlier one's run
    const comm::StopSignals& signals;
    comm::Injection* injection = nullptr;       // null: no fault is wanted
    comm::SlowCompute* slow_compute = nullptr;  // null: this rank computes as fast as it can
    Recovery& recovery;
    comm::MpiEnvironment& mpi;
  };
  /// Everything is borrowed. `resume`: where it resumes; the model already has its weights. Collective.
  Trainer(const RunConfig& config, Job& job, Workload& workload, const Recording& recording,
          const std::optional<state::ResumePoint>& resume, const Log& log);

  /// ExitCode::stopped when a request stopped it and it has left a checkpoint. Collective. Throws Error;
  /// where ranks were lost and the run continues, the survivors have left them behind then.
  ExitCode train();

 private:
  enum class Ending { complete, stopped };
  enum class Steps { done, stop_wanted, exhausted };  // exhausted: early stopping, within the epoch
  void go_on_from(const state::ResumePoint& resume);
  void tell_where_from(const state::ResumePoint& resume) const;
  void tell_graphs(const std::string& what);
  void tell(std::string_view kind, std::string_view title, const std::string& words);
  ExitCode train_to_the_end();
  Ending train_epoch();
  void adapt_batch();
  Steps train_steps();
  record::PhaseTotals take();
  void leave_out();
  bool validate_within_epoch();
  std::uint64_t counted_hash(const parallel::StepPlan& plan) const;
  parallel::StepRequests requests() const;
  bool moves_layers();
  ExitCode end_part();
  void tell_left_out(std::int64_t step);
  void look_after_ranks(const record::PhaseTotals& phases, const parallel::StepPlan& plan, bool agreed);
  bool owes_save() const;
  bool owes_comparison() const;
  void show_progress(std::int64_t done_in_epoch, std::int64_t done_here, const parallel::StepTotals& sums,
                     double elapsed_s);
  bool is_best_so_far(const std::optional<EvaluationResult>& validation);
  bool is_exhausted() const;
  void agree_on_clock();
  checkpoint::CheckpointInfo info(const EpochSums& sums, bool evaluated) const;
  checkpoint::CheckpointInfo info_of_last_step() const;
  ExitCode stop();
  void finish(record::Status status);
  void test_best();

  const RunConfig& config_;
  Job& job_;
  Workload& workload_;
  record::StepClock& clock_;
  const Log& log_;

  std::unique_ptr<const federated::ClientRounds> rounds_;  // null: the samples belong to no clients
  Replica replica_;
  data::Loader loader_;
  PlannedBatches batches_;  // of loader_
  parallel::Pieces pieces_;
  std::int64_t total_steps_;
  optim::ScheduleConfig schedule_;
  ModelSelection selection_;
  WorkPlan plan_;
  Evaluations evaluations_;
  RunOutputs outputs_;
  state::Checkpoints checkpoints_;
  const comm::StopSignals& signals_;
  comm::Injection* injection_;
  comm::SlowCompute* slow_compute_;
  double stop_at_s_ = std::numeric_limits<double>::infinity();
  record::ProgressLine progress_;
  record::StepPace pace_;
  comm::Stragglers stragglers_;
  WorkBalance balance_;
  PrivacyAccount privacy_;
  Recovery& recovery_;
  Survival survival_;

  std::int64_t step_ = 0;      // updates done
  std::int64_t stepping_ = 0;  // the step under way
  int epoch_ = 0;              // the latest begun, from 1
  EpochSums sums_;             // of its steps so far
  // What is to be added to the plan's hash of its samples: private draws of an earlier part are not the
  // plan's.
  std::uint64_t other_samples_ = 0;
  std::optional<EvaluationResult> validation_;  // after the newest step, within its epoch
  double steps_begun_s_ = 0;                    // when the first of them here was
  bool save_with_epoch_ = false;                // a checkpoint that was due at its last step
  std::int64_t agreed_step_ = 0;                // after which the copies last agreed
  double latest_clock_s_ = 0;                   // of all ranks' virtual clocks, when they last agreed on it
  std::optional<checkpoint::EpochProgress>
      earlier_;                      // of the next epoch, begun by an earlier part of the run
  checkpoint::CheckpointInfo last_;  // of the newest state that a checkpoint may have
  std::set<std::string> anew_;       // what the checkpoint that was resumed lacks
  std::string stretch_;              // what became of its learning rate, where that changes
  h5::Library& library_;
};

}  // namespace dtrain::train
