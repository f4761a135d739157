#include "train/loop/run_outputs.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "checkpoint/writer.hpp"
#include "comm/survey/nvml.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "comm/watch/shared_failure.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/regular_file.hpp"
#include "core/shared_failure.hpp"
#include "core/version.hpp"
#include "record/rank_files.hpp"
#include "record/run_folder.hpp"
#include "train/config/federated_setting.hpp"
#include "train/config/precision.hpp"
#include "train/setup/clients.hpp"
#include "train/setup/topology_rows.hpp"

namespace dtrain::train {
namespace {

constexpr std::size_t kMostOfLedger = 1 << 28;  // bytes
constexpr double kLedgerSyncS = 1;

std::string ledger_path(const std::string& folder) { return folder + "/privacy.ledger"; }

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

record::RunInfo run_info(const RunConfig& config, Job& job, const Workload& workload, const RunStart& start) {
  return {.name = config.output.name,
          .model = models::model_title(config.model.name),
          .dataset = workload.dataset.info().name,
          .strategy = config.strategy,
          .mesh = job.mesh().shape().to_string(),
          .world_size = job.world().size(),
          .start_time_utc = start.utc,
          .dtrain_version = std::string(version()),
          .command_line = config.command_line,
          .config = config.text,
          .emulated = config.fabric.exists() ? config.fabric.in_words() : std::string(),
          .tf32 = tf32_of(config)};
}

std::vector<record::ExtraColumn> for_files(const std::vector<models::ExtraColumns::Column>& columns) {
  std::vector<record::ExtraColumn> extra;
  for (const auto& column : columns) extra.push_back({column.name, column.units});
  return extra;
}

/// `  r2 0.8912  rmse 3.4567`: what the log says of a model's own figures.
std::string own_figures(const std::vector<models::ExtraColumns::Column>& columns,
                        const std::vector<double>& values) {
  constexpr std::string_view kPrefix = "validation_";
  std::string text;
  for (std::size_t k = 0; k < values.size(); ++k) {
    std::string_view name = columns[k].name;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    if (columns[k].log == models::ExtraColumns::Log::yes) text += fmt::format("  {} {:.4f}", name, values[k]);
  }
  return text;
}

/// `epoch 2: forward 1.203 s, backward 2.410 s, optimizer 0.101 s`: what the device did meanwhile.
std::string device_time_in_words(int epoch, const record::PhaseTotals& totals) {
  const auto seconds = [&totals](Phase phase) { return totals.device_s.at(static_cast<std::size_t>(phase)); };
  return fmt::format("epoch {}: forward {:.3f} s, backward {:.3f} s, optimizer {:.3f} s", epoch,
                     seconds(Phase::forward), seconds(Phase::backward), seconds(Phase::optimizer));
}

/// The files of ranks that an earlier part of the run had and this one has not.
void trim_ranks_that_are_gone(h5::Library& library, const std::string& folder,
                              const topology::Cluster& cluster, const record::Kept& kept, const Log& log) {
  for (const auto& file : record::rank_files(folder)) {
    if (is_in(cluster, file.rank)) continue;
    const auto lost = record::RankRecorder::trim(library, file.path, file.rank, kept);
    if (!lost.empty()) log.warn(lost);
  }
}

}  // namespace

std::string checkpoints_folder(const RunConfig& config) { return run_folder(config) + "/checkpoints"; }

std::string run_folder(const RunConfig& config) { return config.output.folder + "/" + config.output.name; }

RunOutputs::RunOutputs(const RunConfig& config, Job& job, const Workload& workload, h5::Library& library,
                       record::TraceWriter* trace, const RunStart& start,
                       const std::optional<record::Kept>& kept, std::vector<record::TopologyRow> earlier,
                       const Log& log)
    : config_(config),
      period_(is_federated(config) ? "round" : "epoch"),
      job_(job),
      library_(library),
      trace_(trace),
      log_(log),
      folder_(run_folder(config)),
      start_ns_(start.steady_ns),
      flops_per_sample_(workload.flops_per_sample),
      estimated_(workload.memory),
      scoring_(workload.scoring),
      extra_columns_(workload.model->extra_columns().columns),
      classes_(workload.dataset.info().classes),
      topology_(topology_rows(std::move(earlier), job.cluster(), job.mesh(),
                              static_cast<double>(steady_ns() - start.steady_ns) * 1e-9)),
      recorder_(library, {.path = record::rank_path(folder_, job.first_rank()),
                          .rank = job.first_rank(),
                          .step_every = config.output.record_steps,
                          .start_s = static_cast<double>(start.steady_ns) * 1e-9,
                          .kept = kept,
                          .has_virtual_times = job.virtual_clock() != nullptr}) {
  if (!recorder_.lost().empty()) log_.warn(recorder_.lost());
  if (job.rank() != 0) return;
  const bool goes_on = kept && std::filesystem::exists(record::results_path(folder_));
  results_ =
      std::make_unique<record::ResultsWriter>(library, folder_, run_info(config, job, workload, start),
                                              for_files(extra_columns_), goes_on ? kept : std::nullopt);
  if (!results_->lost().empty()) log_.warn(results_->lost());
  if (kept) trim_ranks_that_are_gone(library, folder_, job.cluster(), *kept, log_);
  results_->topology(topology_);
  if (config.output.tensorboard) {
    tensorboard_ = std::make_unique<record::TensorBoardWriter>(record::tensorboard_folder(folder_), kept);
    curves_.emplace(*tensorboard_);
  }
}

void RunOutputs::clients(const federated::Partition& partition, const Workload& workload) {
  if (results_ != nullptr) results_->clients(described_clients(config_, partition, workload));
}

void RunOutputs::step(const parallel::StepPlan& plan, int epoch, const parallel::StepOutcome& outcome,
                      const record::PhaseTotals& phases) {
  const StepMade made{.number = plan.number,
                      .epoch = epoch,
                      .learning_rate = plan.learning_rate,
                      .phases = phases,
                      .ended_ns = steady_ns()};
  if (!outcome.late) return write(made, outcome);
  settled(outcome);
  late_ = made;
}

void RunOutputs::settled(const parallel::StepOutcome& outcome) {
  if (late_) write(*std::exchange(late_, std::nullopt), outcome);
}

void RunOutputs::write(const StepMade& made, const parallel::StepOutcome& outcome) {
  const auto& own = outcome.own;
  recorder_.step({.step = made.number,
                  .epoch = made.epoch,
                  .loss = own.weight > 0 ? own.loss / own.weight : record::kNoValue,
                  .weight = own.weight,
                  .gradient_norm = outcome.gradient_norm,
                  .learning_rate = made.learning_rate,
                  .time_s = made.phases.wall_s,
                  .phases = made.phases.times,
                  .ended_at_s = static_cast<double>(made.ended_ns - start_ns_) * 1e-9});
  if (const auto* clock = job_.virtual_clock())
    recorder_.virtual_time({.step = made.number, .epoch = made.epoch, .virtual_time_s = clock->now_s()});
  if (!curves_) return;
  since_agreed_s_ += made.phases.wall_s;
  if (!outcome.agreed) return;
  curves_->add({.number = made.number,
                .loss = outcome.total.loss,
                .weight = outcome.total.weight,
                .samples = outcome.total.samples,
                .time_s = std::exchange(since_agreed_s_, 0.0),
                .gradient_norm = outcome.gradient_norm,
                .learning_rate = made.learning_rate});
}

// Aside and renamed: a reader, and a run that was killed, has a whole one. Without it no step may follow. A
// node that loses its power forgets what is not on the disk, with the steps themselves: to wait for the disk
// after each of them would take as long as a small step.
void RunOutputs::ledger(const std::string& lines) {
  if (results_ == nullptr) return;
  ledger_waits_ = ledger_synced_s_ && steady_s() - *ledger_synced_s_ < kLedgerSyncS;
  if (ledger_waits_) return record::replace_file(ledger_path(folder_), lines);
  record::replace_file_durably(ledger_path(folder_), lines);
  ledger_synced_s_ = steady_s();
}

std::optional<std::string> ledger_in(const std::string& folder) {
  const auto path = ledger_path(folder);
  if (!std::filesystem::exists(std::filesystem::symlink_status(path))) return std::nullopt;
  return read_regular_file(path, kMostOfLedger, ExitCode::checkpoint);
}

void RunOutputs::privacy(const record::PrivacyRow& row) {
  epsilon_ = row.epsilon;
  if (results_ == nullptr) return;
  if (std::exchange(ledger_waits_, false)) {
    record::sync_to_disk(ledger_path(folder_));
    record::sync_to_disk(folder_);
  }
  results_->privacy(row);
}

void RunOutputs::memory(int epoch, std::int64_t peak_bytes, std::int64_t held_bytes) {
  recorder_.event("activation_memory", fmt::format("{} {}: at most {} bytes, estimated {:.0f}", period_,
                                                   epoch, peak_bytes - held_bytes, estimated_.activations));
  recorder_.event("tensor_memory",
                  fmt::format("{} {}: at most {} bytes while it trained, estimated {:.0f}", period_, epoch,
                              peak_bytes, estimated_.held() + estimated_.activations));
}

void RunOutputs::epoch(int epoch, const EpochSums& sums, const std::optional<EvaluationResult>& validation) {
  const auto own = scores_of(sums.own, static_cast<std::int64_t>(sums.own.samples), scoring_);
  const auto total = scores_of(sums.total, sums.samples, scoring_);
  const Scores none{.loss = record::kNoValue, .accuracy = record::kNoValue};
  const auto own_validation = validation ? validation->own : none;
  const auto total_validation = validation ? validation->total : none;
  const double validation_time_s = validation ? validation->time_s : 0;
  const auto extra =
      validation ? validation->extra : std::vector<double>(extra_columns_.size(), record::kNoValue);

  recorder_.samples(epoch, sums.sample_hash);
  for (std::size_t rank = 0; rank < sums.traffic.size(); ++rank) {
    const auto& bytes = sums.traffic[rank];
    if (bytes.sent == 0 && bytes.received == 0) continue;
    recorder_.traffic({.epoch = epoch,
                       .peer = static_cast<std::int64_t>(rank),
                       .bytes_sent = bytes.sent,
                       .bytes_received = bytes.received});
  }
  recorder_.epoch({.epoch = epoch,
                   .train_loss = own.loss,
                   .train_accuracy = own.accuracy,
                   .validation_loss = own_validation.loss,
                   .validation_accuracy = own_validation.accuracy,
                   .samples = own.samples,
                   .train_time_s = sums.phases.wall_s,
                   .validation_time_s = validation_time_s,
                   .phases = sums.phases.times,
                   .bytes_sent = sums.phases.bytes_sent,
                   .bytes_received = sums.phases.bytes_received,
                   .peak_memory_bytes = peak_memory_bytes(),
                   .device_peak_memory_bytes = parallel::peak_memory(job_.device())});
  if (!job_.device().is_cpu()) recorder_.event("device_time", device_time_in_words(epoch, sums.phases));
  const auto& place = job_.cluster().ranks.at(static_cast<std::size_t>(job_.rank()));
  const auto gpu = place.device_uuid.empty() ? std::nullopt : comm::read_gpu_state(place.device_uuid);
  if (gpu) recorder_.event("gpu", gpu->in_words());
  flush();  // before any rank goes on: a rank that is killed must not take the epoch's rows with it
  // An epoch takes as long as its slowest rank.
  const double train_time_s = sums.earlier_s + job_.world().max(sums.phases.wall_s);
  const double longest_validation_s = job_.world().max(validation_time_s);
  if (results_ == nullptr) return;

  results_->staleness(epoch, sums.staleness);
  if (const auto& round = sums.round) {
    results_->round({.round = epoch,
                     .sampled = round->sampled,
                     .handed_in = round->handed_in,
                     .samples = round->samples,
                     .update_norm = round->update_norm,
                     .epsilon = epsilon_});
  }
  const double samples_per_s = static_cast<double>(sums.samples) / train_time_s;
  results_->epoch({.epoch = epoch,
                   .train_loss = total.loss,
                   .train_accuracy = total.accuracy,
                   .validation_loss = total_validation.loss,
                   .validation_accuracy = total_validation.accuracy,
                   .samples = sums.samples,
                   .train_time_s = train_time_s,
                   .validation_time_s = longest_validation_s,
                   .samples_per_s = samples_per_s,
                   .model_flops_per_s = samples_per_s * flops_per_sample_,
                   .learning_rate = sums.learning_rate},
                  extra);
  warn_of_lost_results();
  if (tensorboard_) {
    tensorboard_->scalar("train/loss", epoch, total.loss);
    tensorboard_->scalar("train/accuracy", epoch, total.accuracy);
    tensorboard_->scalar("validation/loss", epoch, total_validation.loss);
    tensorboard_->scalar("validation/accuracy", epoch, total_validation.accuracy);
    for (std::size_t k = 0; k < extra.size(); ++k)
      tensorboard_->scalar(extra_columns_[k].name, epoch, extra[k]);
    tensorboard_->scalar("train/samples_per_s", epoch, samples_per_s);
    tensorboard_->scalar("train/learning_rate", epoch, sums.learning_rate);
    tensorboard_->flush();
  }
  std::string line =
      fmt::format("{} {:>3}/{}  train loss {:.4f}", period_, epoch, config_.epochs, total.loss);
  if (scoring_ == Scoring::loss_and_accuracy) line += fmt::format(" accuracy {:.4f}", total.accuracy);
  if (validation) line += fmt::format("  validation loss {:.4f}", total_validation.loss);
  if (validation && scoring_ == Scoring::loss_and_accuracy) {
    line += fmt::format(" accuracy {:.4f}", total_validation.accuracy);
  }
  if (validation) line += own_figures(extra_columns_, extra);
  if (sums.round && sums.round->handed_in < sums.round->sampled)
    line += fmt::format("  {} of {} clients", sums.round->handed_in, sums.round->sampled);
  line += fmt::format("  {:.2f} s  {:.0f} samples/s", train_time_s, samples_per_s);
  if (const auto* clock = job_.virtual_clock()) line += fmt::format("  virtual {:.3f} s", clock->now_s());
  log_.info(line);
}

void RunOutputs::validation(std::int64_t step, int epoch, const EvaluationResult& result, Line line) {
  const auto& total = result.total;
  const double time_s = job_.world().max(result.time_s);
  if (results_ == nullptr) return;
  results_->validation({.step = step,
                        .epoch = epoch,
                        .loss = total.loss,
                        .accuracy = total.accuracy,
                        .samples = total.samples,
                        .time_s = time_s},
                       result.extra);
  if (line == Line::none) return;
  results_->write_now();
  warn_of_lost_results();
  if (tensorboard_) {
    tensorboard_->scalar("validation_by_step/loss", step, total.loss);
    tensorboard_->scalar("validation_by_step/accuracy", step, total.accuracy);
    tensorboard_->flush();
  }
  std::string text = fmt::format("step  {:>7}  validation loss {:.4f}", step, total.loss);
  if (scoring_ == Scoring::loss_and_accuracy) text += fmt::format(" accuracy {:.4f}", total.accuracy);
  log_.info(text + fmt::format("  {:.2f} s", time_s));
}

void RunOutputs::flights() {
  const auto& recorder = job_.groups().recorder();
  for (const int rank : recorder.ranks()) {
    const auto path = fmt::format("{}/ranks/flights-{:05}.csv", folder_, rank);
    if (rank != job_.first_rank() && std::filesystem::exists(path)) continue;
    std::ofstream file(path);
    recorder.print(rank, start_ns_, file);
  }
  recorder_.flush();
}

std::vector<record::TopologyRow> RunOutputs::topology_without(const std::vector<int>& lost) const {
  auto rows = topology_;
  const double now_s = static_cast<double>(steady_ns() - start_ns_) * 1e-9;
  for (auto& row : rows) {
    const bool gone = std::ranges::find(lost, row.rank) != lost.end();
    if (gone && row.generation == rows.back().generation) row.left_at_s = now_s;
  }
  return rows;
}

void RunOutputs::warn_of_lost_results() {
  if (warned_ || results_->problem().empty()) return;
  warned_ = true;
  log_.warn("results.h5 is not up to date: " + results_->problem());
}

void RunOutputs::test_sites(const std::vector<std::string>& sites, const std::vector<SiteScore>& scores) {
  if (results_ == nullptr) return;
  std::vector<record::SiteRow> rows;
  for (std::size_t site = 0; site < sites.size(); ++site) {
    const auto& score = scores.at(site);
    rows.push_back({.site = sites[site],
                    .samples = score.samples,
                    .loss = score.loss,
                    .accuracy = score.accuracy,
                    .f1 = score.f1,
                    .auc = score.auc});
  }
  results_->test_sites(std::move(rows));
}

void RunOutputs::test_clients(const record::Clients& clients, const std::vector<SiteScore>& scores) {
  if (results_ == nullptr) return;
  std::vector<record::ClientTestRow> rows;
  double sum = 0;
  double worst = 1;
  std::int64_t counted = 0;
  for (std::size_t k = 0; k < scores.size(); ++k) {
    const auto& score = scores[k];
    rows.push_back({.client = clients.rows.at(k).client,
                    .name = clients.rows[k].name,
                    .samples = score.samples,
                    .loss = score.loss,
                    .accuracy = score.accuracy,
                    .f1 = score.f1,
                    .auc = score.auc});
    if (score.samples == 0) continue;
    sum += score.accuracy;
    worst = std::min(worst, score.accuracy);
    ++counted;
  }
  results_->test_clients(std::move(rows));
  if (counted > 0)
    log_.info(fmt::format("clients    test accuracy {:.4f} on average, {:.4f} at worst",
                          sum / static_cast<double>(counted), worst));
}

void RunOutputs::test(const EvaluationResult& result, std::int64_t step, std::int64_t epoch) {
  if (results_ == nullptr) return;
  const auto folder = "checkpoints/" + checkpoint::step_folder(step);
  results_->test({.loss = result.total.loss,
                  .accuracy = result.total.accuracy,
                  .samples = result.total.samples,
                  .time_s = result.time_s,
                  .checkpoint = folder},
                 result.extra, {.classes = classes_, .counts = result.confusion});
  warn_of_lost_results();
  std::string line = fmt::format("test       loss {:.4f}", result.total.loss);
  if (scoring_ == Scoring::loss_and_accuracy) line += fmt::format(" accuracy {:.4f}", result.total.accuracy);
  line += own_figures(extra_columns_, result.extra);
  log_.info(line + fmt::format("  ({} {}, {})", period_, epoch, folder));
}

std::optional<Error> RunOutputs::finish(record::Status status) {
  recorder_.close();
  if (trace_ != nullptr) trace_->close();
  const comm::LongPhase copying(job_.world(), config_.files_limit_s());
  job_.world().barrier();  // all ranks' files are closed: they can be copied
  const auto lost = failure_of([&] {
    if (results_ == nullptr) return;
    if (status == record::Status::running) {
      results_->write_now();
      require(results_->problem().empty(), results_->problem(), {.subject = record::results_path(folder_)});
      return;
    }
    if (trace_ != nullptr) record::merge_traces(folder_);
    results_->finish(status);
    log_.info(fmt::format("results    {}", record::results_path(folder_)));
  });
  if (const auto problem = recorder_.problem(); !problem.empty())
    log_.warn("recording stopped early: " + problem);
  return comm::first_failure(lost, job_.world());
}

}  // namespace dtrain::train
