#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/span_sink.hpp"
#include "record/run_reader.hpp"

namespace dtrain::app {

/// One rank over all that was recorded of it. NaN where nothing says.
struct RankSummary {
  int rank = 0;
  std::string hostname;
  std::string device;
  double samples = 0;
  double train_time_s = 0;
  double validation_time_s = 0;
  std::array<double, kPhases> phase_s{};  ///< Indexed by Phase.
  double bytes_sent = 0;
  double bytes_received = 0;
  double peak_memory_bytes = 0;
  double last_step = 0;  ///< 0 when steps were not recorded or not read.
  double last_loss = 0;
  /// Whether it was there in each epoch that any rank has recorded: only such ranks are compared.
  bool throughout = true;

  double of(Phase phase) const { return phase_s[static_cast<std::size_t>(phase)]; }
  /// Without waiting for others: what this rank itself took.
  double own_time_s() const {
    return train_time_s - of(Phase::exposed_communication) - of(Phase::pipeline_idle);
  }
};

/// A rank whose own time is over what is usual by more than kSlowMargin: over the median, and over that of
/// time per sample for as many as it had.
struct SlowRank {
  int rank = 0;
  std::string hostname;
  double own_time_s = 0;
  double usual_s = 0;
  double over_median = 0;  ///< 0.35 for 35 % more.
};
inline constexpr double kSlowMargin = 0.10;

/// The newest step that all ranks which are still at work have recorded.
struct NewestStep {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;     ///< Mean over the ranks' weights.
  double time_s = 0;   ///< Of the slowest rank.
  bool of_all = true;  ///< False: the rows that were read of a rank begin behind it.
};

/// Nothing where no step was recorded.
std::optional<NewestStep> newest_step(const record::RunRecord& run);

/// What a report says of a run beside its rows.
struct RunSummary {
  std::string name;  ///< Attribute `name`, else the folder's.
  int ranks = 0;
  int nodes = 0;
  double epochs = 0;
  double samples = 0;
  double train_time_s = 0;  ///< Over all epochs; of the slowest rank in each.
  double samples_per_s = 0;
  double flops_per_s = 0;
  double best_validation_loss = 0;
  double best_validation_accuracy = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  std::vector<RankSummary> by_rank;
  std::array<double, kPhases> mean_phase_s{};  ///< Over the ranks that were there throughout.
  double mean_train_time_s = 0;
  double median_own_time_s = 0;
  std::vector<SlowRank> slow;  ///< Slowest first.
  double lost_s = 0;           ///< What the slowest rank made the others wait: its own time less the median.
};

RunSummary summarize(const record::RunRecord& run);

/// The sum of a column without its NaN; 0 when there is none.
double sum_of(const record::Table& table, const std::string& column);

}  // namespace dtrain::app
