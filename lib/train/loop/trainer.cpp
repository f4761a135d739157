#include "train/loop/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "checkpoint/writer.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "core/clock.hpp"
#include "core/counted.hpp"
#include "data/sampler.hpp"
#include "parallel/memory/memory_meter.hpp"
#include "state/interval.hpp"
#include "train/config/federated_setting.hpp"
#include "train/loop/checkpoint_info.hpp"
#include "train/loop/client_scores.hpp"
#include "train/loop/planned_work.hpp"
#include "train/recovery/continuation.hpp"
#include "train/setup/announcement.hpp"

namespace dtrain::train {
namespace {

/// Where ranks take their work as they come, batches are known one by one.
data::LoaderOptions training_loader(const Job& job, const Replica& replica) {
  if (!replica.can().deals_work) return loader_options(job);
  return {.drive = data::LoaderOptions::Drive::inline_call};
}

}  // namespace

Trainer::Trainer(const RunConfig& config, Job& job, Workload& workload, const Recording& recording,
                 const std::optional<state::ResumePoint>& resume, const Log& log)
    : config_(config),
      job_(job),
      workload_(workload),
      clock_(recording.clock),
      log_(log),
      rounds_(client_rounds(config, workload)),
      replica_(config, job, workload, rounds_.get(), recording.injection, recording.recovery.may_lose_ranks(),
               [this] { return requests(); },
               {.graphs = [this](const std::string& what) { tell_graphs(what); },
                .tell =
                    [this](auto kind, auto detail) {
                      if (job_.rank() == 0) outputs_.event(kind, detail);
                    },
                .ledger = [this](const std::string& lines) { outputs_.ledger(lines); }}),
      loader_(workload.dataset, "train", training_loader(job, replica_), workload.read),
      batches_([this] { return loader_.next(); },
               [this](const data::Batch& batch) { return replica_.training_samples(batch); },
               job.groups().recorder()),
      pieces_{.samples = workload.dataset.info().samples("train"),
              .global_batch = samples_of_step(config, workload.dataset.info().samples("train")),
              .micro_batches = config.batch.micro_batches,
              .data_ranks = job.mesh().shape().data},
      total_steps_(config.total_steps(pieces_.steps())),
      schedule_(config.update.schedule),
      selection_(config.validation, pieces_.steps(), workload.scoring,
                 workload.dataset.info().samples("validation")),
      plan_(planned_work(config, job, workload, replica_, rounds_.get(), pieces_,
                         [this](std::int64_t step) { return selection_.due_within_epoch(step); })),
      evaluations_(job, workload, replica_, recording.injection, config.files_limit_s()),
      outputs_(config, job, workload, recording.library, recording.begin_files(), recording.start,
               rows_kept(resume, recording.recovery.behind(), pieces_.samples), recording.recovery.topology(),
               log),
      checkpoints_({.folder = checkpoints_folder(config),
                    .every = config.output.checkpoint_interval(),
                    .most_share = config.most_checkpoint_share(),
                    .keep = config.output.keep},
                   job.state_ranks(), recording.library, job.groups().recorder(), log,
                   [this](auto kind, auto detail) { outputs_.event(kind, detail); }),
      signals_(recording.signals),
      injection_(recording.injection),
      slow_compute_(recording.slow_compute),
      progress_(stdout, job.rank() != 0 || config.output.quiet ? record::ProgressLine::Style::none
                        : config.output.terminal               ? record::ProgressLine::Style::in_place
                                                               : record::ProgressLine::Style::lines),
      stragglers_(job.groups().world()),
      balance_({.config = config,
                .job = job,
                .workload = workload,
                .replica = replica_,
                .pieces = pieces_,
                .plan = plan_,
                .tell =
                    [this](const std::string& kind, const std::string& words) {
                      if (job_.rank() == 0) tell(kind, kind, words);
                    }}),
      privacy_(
          {.training = replica_.strategy().privacy(),
           .folder = run_folder(config),
           .speaks = job.rank() == 0,
           .outputs = outputs_,
           .tell = [this](const std::string& kind, const std::string& words) { tell(kind, kind, words); }}),
      recovery_(recording.recovery),
      survival_({config, job, replica_, outputs_, recording.injection, recording.recovery, recording.mpi,
                 recording.library, log}),
      library_(recording.library) {
  if (config.exit_after != "none") {
    stop_at_s_ = recording.begun_s + state::parse_time_s(config.exit_after, "--exit-after");
  }
  if (config.reproducible) outputs_.event("reproducible", bits_of(config, job.threads()));
  if (rounds_ != nullptr) outputs_.clients(rounds_->partition(), workload);
  if (!config.inject.empty()) outputs_.event("injected", config.inject);
  if (config.fabric.exists()) outputs_.event("emulated", config.fabric.in_words());
  outputs_.event("start_memory", fmt::format("at most {} bytes of tensors before the first step",
                                             parallel::MemoryMeter::process().peak()));
  if (!config.pipeline.chosen.empty()) outputs_.event("memory_limit", config.pipeline.chosen);
  if (!workload.read_in_place.empty()) outputs_.event("read_in_place", workload.read_in_place);
  if (resume) go_on_from(*resume);
  privacy_.begin(resume && resume->own, !workload.dataset.info().mean.empty());
  announce(config, job, workload, replica_.can().replays_graphs.why_not, log);
  if (rounds_ != nullptr) {
    const auto* const privacy = replica_.strategy().privacy();
    log.info("clients    " + in_words(*rounds_, privacy != nullptr && privacy->drawn_clients(1)));
  }
  if (resume) tell_where_from(*resume);
}

/// The weights are there; the rest of the state, and where the run stood.
void Trainer::go_on_from(const state::ResumePoint& resume) {
  job_.world().barrier();  // rank 0's results are there: an error from here on leaves a run that has failed
  const auto start = standing(resume, pieces_, config_.output.optimizer_state);
  last_ = resume.own ? start : begun_at(start, info_of_run(config_, workload_, job_), total_steps_);
  require(last_.step <= total_steps_,
          fmt::format("has done {} steps, and only {} are wanted", last_.step, total_steps_),
          {.subject = resume.folder.string(),
           .advice = "raise --limit-steps or --epochs",
           .code = ExitCode::usage});
  if (resume.own || config_.output.optimizer_state != "reset") {
    anew_ = replica_.load_optimizer(resume.folder, library_);
  } else {
    replica_.load_what_outlives_reset(resume.folder, library_);
  }
  if (!resume.own) take_over_client_states(config_, resume, run_folder(config_) + "/clients", job_.world());
  step_ = last_.step;
  agreed_step_ = step_;
  epoch_ = static_cast<int>(last_.epoch);
  if (resume.own) checkpoints_.go_on_from(last_.step, last_.best);
  // A run of another name records times of its own, from 0.
  if (resume.own && job_.virtual_clock() != nullptr)
    job_.virtual_clock()->wait_until(last_.so_far.virtual_time_s);
  replica_.strategy().scaler().go_on_from(from_checkpoint(last_.loss_scale));
  if (!is_done(last_, pieces_.samples)) {
    earlier_ = last_.so_far;
    --epoch_;
  }
  for (const auto& problem : resume.passed_over) outputs_.event("checkpoint_damaged", problem);
  stretch_ = stretched_schedule(schedule_, config_.update.recipe_warmup_steps, start, total_steps_);
  if (!stretch_.empty()) outputs_.event("schedule", stretch_);
  for (const auto& sentence : anew_) outputs_.event("starts_anew", sentence);
  if (!resume.forgotten_best.empty()) outputs_.event("best_forgotten", resume.forgotten_best);
  outputs_.event("resumed", fmt::format("from {} on {} ranks, {}", resume.folder.filename().string(),
                                        job_.world().size(), job_.mesh().shape().to_string()));
}

void Trainer::tell_where_from(const state::ResumePoint& resume) const {
  for (const auto& problem : resume.passed_over) log_.info("passed over " + problem);
  if (!resume.forgotten_best.empty()) log_.info("the best is forgotten: " + resume.forgotten_best);
  for (const auto& sentence : anew_) log_.info("resumed    " + sentence);
  if (!stretch_.empty() && job_.rank() == 0) log_.warn(stretch_);
  log_.info(fmt::format("resumed    from {}, step {} of {}", resume.folder.string(), step_, total_steps_));
}

ExitCode Trainer::train() {
  try {
    return train_to_the_end();
  } catch (const Error& error) {
    job_.groups().queue().drop(error.what());  // its memory goes as the error unwinds, or is saved before
    if (error.code() != ExitCode::lost_rank) {
      checkpoints_.give_up_when_written();
      throw;
    }
    // Each rank ends what it writes of a checkpoint first, and a disk may be slow.
    const auto files = checkpoints_.is_open() ? Recovery::Files::open : Recovery::Files::closed;
    checkpoints_.give_up();
    if (!survival_.leave_lost_behind(
            error, step_, [this] { return info_of_last_step(); }, files))
      job_.groups().check_deaths();  // it names the rank
    throw;
  } catch (...) {  // memory, for example
    job_.groups().queue().drop("the training has failed");
    checkpoints_.give_up_when_written();
    throw;
  }
}

ExitCode Trainer::train_to_the_end() {
  while (epoch_ < config_.epochs && (step_ < total_steps_ || earlier_) && !is_exhausted() &&
         (earlier_ || !privacy_.is_spent())) {
    ++epoch_;
    if (train_epoch() == Ending::stopped) return stop();
    if (moves_layers()) return end_part();
  }
  if (is_exhausted() && step_ < total_steps_) {
    const auto why =
        fmt::format("after step {}: {} validations in a row were not better than that of step {}", step_,
                    config_.validation.early_stopping, checkpoints_.best().step);
    outputs_.event("early_stopping", why);
    log_.info("stopped    early " + why);
  }
  if (step_ < total_steps_ && privacy_.is_spent()) {
    const auto why = privacy_.why_spent(step_);
    require_option(step_ > 0, "nothing was trained: " + why, "--target-epsilon",
                   "use more --dp-noise, or a larger epsilon");
    outputs_.event("privacy_spent", why);
    log_.info("privacy    spent " + why);
  }
  checkpoints_.wait();
  if (checkpoints_.best().step == 0) {  // none could be written so far: this one would be the best
    last_.best = {.step = step_, .loss = std::numeric_limits<double>::quiet_NaN()};
  }
  checkpoints_.finish(replica_.state(), last_);
  if (checkpoints_.problem().empty()) survival_.all_is_saved();
  test_best();
  finish(record::Status::completed);
  return ExitCode::success;
}

/// Throws Error when something that the run was to leave behind is missing.
void Trainer::finish(record::Status status) {
  if (injection_ != nullptr && status != record::Status::running) injection_->reach("shutdown");
  privacy_.finish();
  const auto& problem = checkpoints_.problem();
  const auto lost = outputs_.finish(problem.empty() ? status : record::Status::failed);
  require(problem.empty(), problem,
          {.subject = checkpoints_folder(config_), .advice = "free space", .code = ExitCode::checkpoint});
  if (lost)
    throw checkpoint_error(lost->problem(), lost->subject(),
                           lost->advice().empty() ? "free space" : lost->advice());
}

/// Leaves what the run can be resumed from.
ExitCode Trainer::stop() {
  checkpoints_.finish(replica_.state(), last_);
  outputs_.event("stopped", fmt::format("on request after step {}", step_));
  finish(record::Status::preempted);
  log_.info(fmt::format("stopped    on request after step {}; the same command goes on from there", step_));
  return ExitCode::stopped;
}

/// Whether the run goes on with other cuts of the pipeline, after an epoch. From the checkpoint that this
/// leaves, the next part of the run takes each layer and its optimizer state: without it the layers stay.
bool Trainer::moves_layers() {
  const bool goes_on = epoch_ < config_.epochs && step_ < total_steps_ && !is_exhausted();
  if (!goes_on) return false;
  auto decision = balance_.new_cuts(epoch_);
  if (!decision) return false;
  checkpoints_.finish(replica_.state(), last_);
  const bool is_saved = checkpoints_.problem().empty();
  if (job_.rank() == 0) {
    tell("stages", "stages",
         is_saved
             ? decision->words
             : fmt::format("after epoch {} the layers stay where they are: the checkpoint from which they "
                           "would move is missing",
                           epoch_));
  }
  if (is_saved) recovery_.move_layers(std::move(decision->move.costs));
  return is_saved;
}

/// The next part follows at once: the run's files go on to say that it runs.
ExitCode Trainer::end_part() {
  finish(record::Status::running);
  return ExitCode::stopped;
}

parallel::StepRequests Trainer::requests() const {
  const bool stops = signals_.asked() || (job_.rank() == 0 && steady_s() >= stop_at_s_);
  const bool ends_epoch = stepping_ - (epoch_ - 1) * pieces_.steps() == plan_.steps();
  const bool saves = checkpoints_.asked_by_clock() || (ends_epoch && checkpoints_.asked_after_epoch(epoch_));
  return {.stop = stops ? 1.0 : 0.0, .save = saves ? 1.0 : 0.0};
}

/// Whether a step is given to the device in a few calls decides how fast it is: recorded, so that a later
/// reader sees it, too.
void Trainer::tell_graphs(const std::string& what) { tell("graphs", "graphs", what); }

/// An event of the run and a line of the log, which begins with `title`.
void Trainer::tell(std::string_view kind, std::string_view title, const std::string& words) {
  outputs_.event(kind, words);
  progress_.clear();
  log_.info(fmt::format("{:<10} {}", title, words));
}

Trainer::Ending Trainer::train_epoch() {
  const auto first_step = (epoch_ - 1) * pieces_.steps();
  const auto* const adaptive = replica_.strategy().adaptive_batch();
  const auto size =
      adaptive == nullptr ? WorkPlan::StepSize() : WorkPlan::StepSize{adaptive->batches(), adaptive->rate()};
  plan_.begin_epoch(epoch_, step_ - first_step, size);
  sums_ = {};
  other_samples_ = 0;
  if (earlier_) {
    sums_ = sums_of(*earlier_);
    other_samples_ = earlier_->sample_hash - plan_.hash_of_first(step_ - first_step);
    if (job_.rank() == 0) sums_.sample_hash = earlier_->sample_hash;
    earlier_.reset();
  }
  auto& meter = parallel::MemoryMeter::process();
  const auto held_bytes = meter.live();
  meter.begin_peak();
  const Steps ended = train_steps();
  outputs_.trace_step(0);
  if (ended == Steps::stop_wanted) return Ending::stopped;
  if (step_ - first_step == pieces_.steps()) adapt_batch();
  const bool drawn = privacy_.is_private() || rounds_ != nullptr;
  sums_.samples = drawn ? std::llround(sums_.total.samples) : pieces_.step(step_ - first_step - 1).end;
  outputs_.memory(epoch_, meter.peak(), held_bytes);

  replica_.strategy().synchronise();
  const auto validation = ended == Steps::exhausted ? validation_ : evaluations_.run("validation");
  progress_.clear();
  if (validation && ended == Steps::done)
    outputs_.validation(step_, epoch_, *validation, RunOutputs::Line::none);
  privacy_.after_epoch(epoch_, step_);
  outputs_.epoch(epoch_, sums_, validation);
  agree_on_clock();
  last_ = info(sums_, true);
  const bool is_best = is_best_so_far(validation);
  if ((is_best && validation) || save_with_epoch_ || checkpoints_.due_after_epoch(epoch_))
    checkpoints_.save(replica_.state(), last_);
  return Ending::complete;
}

/// Once all of an epoch is done, and before the checkpoint that keeps what is decided.
void Trainer::adapt_batch() {
  auto* const adaptive = replica_.strategy().adaptive_batch();
  if (adaptive == nullptr) return;
  const auto words = fmt::format("after epoch {}: {}", epoch_, adaptive->end_epoch(pieces_.steps()));
  if (job_.rank() == 0) tell("adaptive_batch", "batch", words);
}

/// The steps of the epoch that are still to do, unless all ranks are asked to stop before.
Trainer::Steps Trainer::train_steps() {
  const auto first_step = (epoch_ - 1) * pieces_.steps();
  const auto done = step_ - first_step;
  batches_.begin();
  if (replica_.reads()) loader_.start(plan_.requests());

  leave_out();  // what happened between the epochs belongs to neither
  steps_begun_s_ = steady_s();
  pace_.begin_epoch();
  // A run that was stopped after a step whose validation was due does it now.
  const bool owes =
      done > 0 && done < plan_.steps() && selection_.due_within_epoch(step_) && !last_.so_far.evaluated;
  if (owes) {
    last_ = info(sums_, false);
    if (validate_within_epoch()) checkpoints_.save(replica_.state(), last_);
    if (is_exhausted()) return Steps::exhausted;
  }
  if (done > 0 && privacy_.is_spent()) return Steps::done;  // by an earlier part of the run
  while (const auto* plan = plan_.next()) {
    job_.groups().recorder().begin_step(plan->number);
    outputs_.trace_step(plan->number);
    if (injection_ != nullptr) injection_->begin_step(plan->number);
    if (slow_compute_ != nullptr) slow_compute_->begin_step(plan->number);
    stepping_ = plan->number;
    const auto outcome = replica_.step(*plan, batches_);
    step_ = plan->number;
    privacy_.after_step();
    if (outcome.left_out) tell_left_out(outcome.late ? step_ - 1 : step_);
    if (outcome.round && !outcome.round->problem.empty() && job_.rank() == 0)
      tell("round_failed", "clients", outcome.round->problem + ": the model is as it was");
    if (outcome.round && !outcome.round->news.empty() && job_.rank() == 0)
      log_.info("clients    " + outcome.round->news);
    const bool stops = outcome.requests.stop > 0 && step_ < total_steps_;
    const bool due = outcome.agreed && (outcome.requests.save > 0 || owes_save());
    const bool compares = outcome.agreed && owes_comparison();
    if (outcome.agreed) agreed_step_ = step_;
    const bool ends_epoch = step_ - first_step == plan_.steps();
    save_with_epoch_ = due && ends_epoch && !stops;  // once: its evaluation belongs to it
    const bool saves = due && !ends_epoch;
    const bool validates = outcome.agreed && !stops && !ends_epoch && selection_.due_within_epoch(step_);
    std::optional<parallel::StepOutcome> rest;
    if (stops || saves || validates || ends_epoch) rest = replica_.strategy().settle();
    if (rest && rest->left_out) tell_left_out(step_);
    if (stops || saves || validates) {
      agree_on_clock();
      auto sums = sums_;
      sums.add(outcome, {}, plan->learning_rate, 0);
      if (rest) sums.add(*rest);
      last_ = info(sums, false);
      if (stops || validates) outputs_.flush();
    }
    auto phases = take();
    const bool is_best = validates && validate_within_epoch();
    const bool takes = !stops && (saves || is_best);
    if (takes) checkpoints_.take(replica_.state(), last_);
    phases += take();
    sums_.add(outcome, phases, plan->learning_rate, counted_hash(*plan));
    outputs_.step(*plan, epoch_, outcome, phases);
    if (rest) {
      sums_.add(*rest);
      outputs_.settled(*rest);
    }
    if (takes) {
      outputs_.flush();  // a rank that is killed must not take the rows of a checkpoint's steps with it
      checkpoints_.write();
    }
    look_after_ranks(phases, *plan, outcome.agreed);
    balance_.step(step_, phases, plan->micro_batches.size());
    if (compares) replica_.strategy().compare_copies(step_);
    if (outcome.agreed) survival_.after_step(step_, [this] { return info_of_last_step(); });
    if (outcome.agreed && sums_.total.weight > 0)
      show_progress(step_ - first_step, step_ - first_step - done, sums_.total, steady_s() - steps_begun_s_);
    if (stops) {
      progress_.clear();
      return Steps::stop_wanted;
    }
    if (validates && is_exhausted()) return Steps::exhausted;
    if (privacy_.is_spent()) return Steps::done;
  }
  return Steps::done;
}

/// In fp16, for the user to see why a step changed nothing.
void Trainer::tell_left_out(std::int64_t step) {
  if (job_.rank() != 0) return;
  outputs_.event("step_left_out",
                 fmt::format("step {}: the gradient is not finite; the loss is scaled by {:g} now", step,
                             replica_.strategy().scaler().scale()));
}

/// Of the samples of a step. A copy's samples are counted once, where their loss is.
std::uint64_t Trainer::counted_hash(const parallel::StepPlan& plan) const {
  std::uint64_t hash = 0;
  if (!replica_.counts_samples()) return hash;
  for (const auto& micro_batch : plan.micro_batches) hash += data::sample_hash(micro_batch.ids);
  return hash;
}

/// What this rank did since the last call, or leave_out(): it belongs to the epoch's steps.
record::PhaseTotals Trainer::take() {
  job_.groups().traffic().take(sums_.traffic);
  return clock_.take();
}

void Trainer::leave_out() {
  std::vector<comm::MovedBytes> unused;
  job_.groups().traffic().take(unused);
  clock_.take();
}

/// Between two steps of an epoch; its time counts for neither. Whether the model is the best so far.
bool Trainer::validate_within_epoch() {
  const double begun_s = steady_s();
  outputs_.trace_step(0);
  replica_.strategy().synchronise();
  validation_ = evaluations_.run("validation");
  progress_.clear();
  outputs_.validation(step_, epoch_, *validation_, RunOutputs::Line::printed);
  last_.so_far.evaluated = true;
  const bool is_best = is_best_so_far(validation_);
  leave_out();
  steps_begun_s_ += steady_s() - begun_s;
  return is_best;
}

/// Whether a rank keeps the others waiting.
void Trainer::look_after_ranks(const record::PhaseTotals& phases, const parallel::StepPlan& plan,
                               bool agreed) {
  if (replica_.can().deals_work) return;  // none does
  const double waited_s = phases.times.exposed_communication_time_s + phases.times.pipeline_idle_time_s;
  comm::Stragglers::Own own{.seconds = phases.wall_s - waited_s};
  for (const auto& micro_batch : plan.micro_batches)
    own.samples += static_cast<double>(micro_batch.samples());
  for (const auto& finding : stragglers_.step(step_, own, agreed)) {
    if (job_.rank() == 0) outputs_.event("straggler", finding);
  }
}

/// Whether a checkpoint was due after one of the steps since the copies last agreed.
bool Trainer::owes_save() const {
  bool owes = false;
  for (auto step = agreed_step_ + 1; step <= step_ && !owes; ++step) owes = checkpoints_.due_after_step(step);
  return owes;
}

/// The same of a comparison of the copies.
bool Trainer::owes_comparison() const {
  return config_.verify_every > 0 && step_ / config_.verify_every > agreed_step_ / config_.verify_every;
}

void Trainer::show_progress(std::int64_t done_in_epoch, std::int64_t done_here,
                            const parallel::StepTotals& sums, double elapsed_s) {
  if (!progress_.visible()) return;
  const auto planned = pieces_.step(done_in_epoch - 1).end - pieces_.step(done_in_epoch - done_here).begin;
  const auto samples = rounds_ != nullptr ? std::llround(sums.samples) : planned;
  pace_.epoch_so_far(done_here, samples, elapsed_s);
  progress_.show({.epoch = epoch_,
                  .epochs = config_.epochs,
                  .step = done_in_epoch,
                  .steps = pieces_.steps(),
                  .run_step = step_,
                  .run_steps = total_steps_,
                  .loss = sums.loss / sums.weight,
                  .samples_per_s = pace_.samples_per_s(),
                  .seconds_left = pace_.step_s() * static_cast<double>(total_steps_ - step_)});
}

/// Before a checkpoint: the run that resumes from it goes on when the last rank's virtual clock stood.
/// Collective.
void Trainer::agree_on_clock() {
  if (const auto* const clock = job_.virtual_clock()) latest_clock_s_ = job_.world().max(clock->now_s());
}

checkpoint::CheckpointInfo Trainer::info(const EpochSums& sums, bool evaluated) const {
  const double here_s = evaluated ? sums_.phases.wall_s : steady_s() - steps_begun_s_;
  const auto last_step = (step_ - 1) % pieces_.steps();  // of its epoch
  auto info = info_of_run(config_, workload_, job_);
  info.step = step_;
  info.epoch = epoch_;
  info.position_samples = pieces_.step(last_step).end;
  info.total_steps = total_steps_;
  info.so_far = progress_of(sums);
  info.so_far.train_time_s = sums_.earlier_s + here_s;
  info.so_far.sample_hash = other_samples_ + plan_.hash_of_first(last_step + 1);
  info.so_far.evaluated = evaluated;
  if (const auto* const clock = job_.virtual_clock())
    info.so_far.virtual_time_s = std::max(latest_clock_s_, clock->now_s());
  info.best = checkpoints_.best();
  info.loss_scale = for_checkpoint(replica_.strategy().scaler().state());
  return info;
}

checkpoint::CheckpointInfo Trainer::info_of_last_step() const {
  return last_.step == step_ ? last_ : info(sums_, false);
}

/// A validation that an earlier part of the run owes has not found anything yet.
bool Trainer::is_exhausted() const {
  const bool owes = earlier_ && !earlier_->evaluated;
  return selection_.is_exhausted(owes ? step_ - 1 : step_, checkpoints_.best());
}

// Without a validation split every epoch whose end is saved is the best so far, also where the same epoch has
// gone on since the last one. All ranks decide alike: the loss is agreed.
bool Trainer::is_best_so_far(const std::optional<EvaluationResult>& validation) {
  const Scores scores = validation
                            ? validation->total
                            : Scores{.loss = -static_cast<double>(epoch_), .accuracy = record::kNoValue};
  if (validation && !selection_.improves(scores, checkpoints_.best())) return false;
  last_.best = {.step = step_, .loss = scores.loss, .accuracy = scores.accuracy};
  return true;
}

void Trainer::test_best() {
  const auto best = checkpoints_.best();
  if (best.step == 0 || workload_.dataset.info().samples("test") == 0) return;
  if (!checkpoints_.problem().empty()) return;  // the best may be what is missing
  const std::string folder = checkpoints_folder(config_) + "/" + checkpoint::step_folder(best.step);
  if (best.step != step_) {
    const comm::LongPhase reading(job_.world(), config_.files_limit_s());
    replica_.load_weights(folder, library_);
    job_.world().barrier();
  }
  const auto steps = pieces_.steps();
  const auto& sites = workload_.dataset.info().sites;
  std::optional<SplitScores> scores;
  if (SplitScores::has(workload_) && (!sites.empty() || rounds_ != nullptr))
    scores.emplace(workload_, "test");
  const auto evaluate = [&] {
    auto result = evaluations_.run("test", scores ? scores->sink() : OutputSink());
    if (scores) scores->agree(job_.groups().world(), job_.speaks_for_tensor_group());
    return result;
  };
  const auto test = evaluate();
  if (!test) return;
  if (scores && !sites.empty()) outputs_.test_sites(sites, scores->by_site());
  if (scores && rounds_ != nullptr) {
    const auto clients = described_clients(config_, rounds_->partition(), workload_);
    outputs_.test_clients(
        clients, scores_of_clients(clients, *scores, replica_.strategy().client_models(), step_, evaluate));
  }
  outputs_.test(*test, best.step, (best.step + steps - 1) / steps);
}

}  // namespace dtrain::train
