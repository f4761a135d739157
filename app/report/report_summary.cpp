#include "report/report_summary.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "core/median.hpp"

namespace dtrain::app {
namespace {

using record::RankRecord;
using record::RunRecord;
using record::Table;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::string phase_column(Phase phase) { return std::string(phase_name(phase)) + "_time_s"; }

template <class Better>
double best_of(const Table& table, const std::string& column, Better better) {
  double best = kUnknown;
  if (!table.has(column)) return best;
  for (const double value : table.column(column)) {
    if (!std::isnan(value) && (std::isnan(best) || better(value, best))) best = value;
  }
  return best;
}

double first_of(const Table& table, const std::string& column) {
  return table.rows > 0 && table.has(column) ? table.column(column).front() : kUnknown;
}

double last_of(const Table& table, const std::string& column) {
  return table.rows > 0 && table.has(column) ? table.column(column).back() : kUnknown;
}

/// Where it was last.
void place_rank(const Table& topology, RankSummary& summary) {
  if (!topology.has("rank") || !topology.has("hostname") || !topology.has("device")) return;
  for (std::size_t i = topology.rows; i-- > 0;) {
    if (static_cast<int>(topology.column("rank")[i]) != summary.rank) continue;
    summary.hostname = topology.texts.at("hostname")[i];
    summary.device = topology.texts.at("device")[i];
    return;
  }
}

/// Whether a row is of the newest generation; where generations are not known, it is.
bool is_newest(const Table& topology, std::size_t row) {
  if (!topology.numbers.contains("generation")) return true;
  const auto& generations = topology.column("generation");
  return generations[row] == generations.back();
}

/// The ranks that train now, as far as is known: a lost one comes no further.
std::optional<std::set<double>> ranks_at_work(const Table& topology) {
  if (topology.rows == 0 || !topology.numbers.contains("rank")) return std::nullopt;
  std::set<double> ranks;
  for (std::size_t i = 0; i < topology.rows; ++i)
    if (is_newest(topology, i) && std::isnan(topology.value("left_at_s", i)))
      ranks.insert(topology.column("rank")[i]);
  return ranks;
}

int count_nodes(const Table& topology) {
  if (!topology.numbers.contains("node")) return 0;
  std::set<double> nodes;
  for (std::size_t i = 0; i < topology.rows; ++i)
    if (is_newest(topology, i)) nodes.insert(topology.column("node")[i]);
  return static_cast<int>(nodes.size());
}

/// Steps of which each row is one: --record-steps.
double steps_per_row(const Table& steps) {
  if (steps.rows < 2) return 1;
  const auto numbers = steps.column("step");
  return std::max(1.0, (numbers.back() - numbers.front()) / static_cast<double>(steps.rows - 1));
}

RankSummary summarize_rank(const RankRecord& rank, const Table& topology) {
  RankSummary summary;
  summary.rank = rank.rank;
  place_rank(topology, summary);
  // Of a run that ended in its first epoch only the steps tell.
  const bool by_epoch = rank.epochs.rows > 0;
  const Table& rows = by_epoch ? rank.epochs : rank.steps;
  const double whole = by_epoch ? 1 : steps_per_row(rank.steps);
  for (std::size_t i = 0; i < kPhases; ++i)
    summary.phase_s[i] = whole * sum_of(rows, phase_column(static_cast<Phase>(i)));
  summary.train_time_s = whole * sum_of(rows, by_epoch ? "train_time_s" : "time_s");
  summary.samples = by_epoch ? sum_of(rows, "samples") : kUnknown;
  summary.validation_time_s = sum_of(rank.epochs, "validation_time_s");
  summary.bytes_sent = sum_of(rank.epochs, "bytes_sent");
  summary.bytes_received = sum_of(rank.epochs, "bytes_received");
  summary.peak_memory_bytes = best_of(rank.epochs, "peak_memory_bytes", std::greater<>());
  summary.last_step = rank.steps.rows > 0 ? last_of(rank.steps, "step") : 0;
  summary.last_loss = last_of(rank.steps, "loss");
  return summary;
}

/// One that came later, or was lost, has fewer epochs than others.
void mark_those_throughout(const RunRecord& run, RunSummary& summary) {
  std::size_t most = 0;
  for (const RankRecord& rank : run.ranks) most = std::max(most, rank.epochs.rows);
  for (std::size_t i = 0; i < run.ranks.size(); ++i)
    summary.by_rank[i].throughout = run.ranks[i].epochs.rows == most;
}

void compare_ranks(RunSummary& summary) {
  std::vector<double> own;
  std::vector<double> per_sample;
  for (const RankSummary& rank : summary.by_rank) {
    if (!rank.throughout) continue;
    own.push_back(rank.own_time_s());
    if (rank.samples > 0) per_sample.push_back(rank.own_time_s() / rank.samples);
    for (std::size_t i = 0; i < kPhases; ++i) summary.mean_phase_s[i] += rank.phase_s[i];
    summary.mean_train_time_s += rank.train_time_s;
  }
  const auto n = static_cast<double>(std::max<std::size_t>(own.size(), 1));
  for (double& phase : summary.mean_phase_s) phase /= n;
  summary.mean_train_time_s /= n;
  summary.median_own_time_s = median(own);
  for (const RankSummary& rank : summary.by_rank) {
    if (!rank.throughout) continue;
    double usual_s = summary.median_own_time_s;
    if (rank.samples > 0) usual_s = std::max(usual_s, median(per_sample) * rank.samples);
    const double over = rank.own_time_s() / usual_s - 1;
    if (over > kSlowMargin)
      summary.slow.push_back({rank.rank, rank.hostname, rank.own_time_s(), usual_s, over});
  }
  std::sort(summary.slow.begin(), summary.slow.end(),
            [](const SlowRank& a, const SlowRank& b) { return a.own_time_s > b.own_time_s; });
  if (!summary.slow.empty()) summary.lost_s = summary.slow.front().own_time_s - summary.slow.front().usual_s;
}

// FLOP/s over all epochs: each epoch's weighs as long as it took.
double mean_flops(const Table& epochs, double train_time_s) {
  if (!epochs.has("model_flops_per_s") || !epochs.has("train_time_s")) return kUnknown;
  double flops = 0;
  for (std::size_t i = 0; i < epochs.rows; ++i) {
    const double rate = epochs.column("model_flops_per_s")[i];
    if (!std::isnan(rate)) flops += rate * epochs.column("train_time_s")[i];
  }
  return train_time_s > 0 ? flops / train_time_s : kUnknown;
}

/// The row of a rank's steps with this number, which is near the end; nothing where it has none.
std::optional<std::size_t> row_of_step(const Table& steps, double step) {
  const auto& numbers = steps.column("step");
  for (std::size_t i = steps.rows; i > 0 && numbers[i - 1] >= step; --i)
    if (numbers[i - 1] == step) return i - 1;
  return std::nullopt;
}

}  // namespace

std::optional<NewestStep> newest_step(const RunRecord& run) {
  double step = std::numeric_limits<double>::infinity();
  const auto at_work = ranks_at_work(run.topology);
  for (const RankRecord& rank : run.ranks) {
    if (at_work && !at_work->contains(rank.rank)) continue;
    if (rank.steps.rows > 0) step = std::min(step, rank.steps.column("step").back());
  }
  if (!std::isfinite(step)) return std::nullopt;
  NewestStep newest{.step = static_cast<std::int64_t>(step)};
  double weight = 0;
  for (const RankRecord& rank : run.ranks) {
    if (rank.steps.rows == 0) continue;
    const auto row = row_of_step(rank.steps, step);
    newest.of_all = newest.of_all && rank.steps.column("step").front() <= step;
    if (!row) continue;
    newest.epoch = static_cast<std::int64_t>(rank.steps.column("epoch")[*row]);
    newest.time_s = std::max(newest.time_s, rank.steps.column("time_s")[*row]);
    const double own = rank.steps.column("weight")[*row];
    if (!(own > 0)) continue;
    newest.loss += own * rank.steps.column("loss")[*row];
    weight += own;
  }
  newest.loss /= weight;
  return newest;
}

double sum_of(const Table& table, const std::string& column) {
  double sum = 0;
  if (!table.has(column)) return sum;
  for (const double value : table.column(column)) {
    if (!std::isnan(value)) sum += value;
  }
  return sum;
}

RunSummary summarize(const RunRecord& run) {
  RunSummary summary;
  const auto name = run.attributes.find("name");
  summary.name = name != run.attributes.end() && !name->second.empty()
                     ? name->second
                     : std::filesystem::path(run.folder).filename().string();
  const auto world_size = run.attributes.find("world_size");
  if (world_size != run.attributes.end()) summary.ranks = std::atoi(world_size->second.c_str());
  summary.nodes = count_nodes(run.topology);
  summary.epochs = static_cast<double>(run.epochs.rows);
  summary.samples = sum_of(run.epochs, "samples");
  summary.train_time_s = sum_of(run.epochs, "train_time_s");
  summary.samples_per_s = summary.train_time_s > 0 ? summary.samples / summary.train_time_s : kUnknown;
  summary.flops_per_s = mean_flops(run.epochs, summary.train_time_s);
  summary.best_validation_loss = best_of(run.epochs, "validation_loss", std::less<>());
  summary.best_validation_accuracy = best_of(run.epochs, "validation_accuracy", std::greater<>());
  summary.test_loss = first_of(run.test, "loss");
  summary.test_accuracy = first_of(run.test, "accuracy");
  for (const RankRecord& rank : run.ranks) summary.by_rank.push_back(summarize_rank(rank, run.topology));
  mark_those_throughout(run, summary);
  compare_ranks(summary);
  return summary;
}

}  // namespace dtrain::app
