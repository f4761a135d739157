#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/import/stage_report.hpp"
#include "data/shards/column.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// What a format's reader found, before it is split and written.
struct Originals {
  std::string task;
  std::vector<std::string> classes;
  std::vector<std::string> targets;             ///< Names of several; empty for one.
  std::vector<TargetScale> target_scales = {};  ///< See DatasetInfo.
  std::vector<std::int64_t> target_shape = {};  ///< [H, W] of a class for each place; else empty.
  std::vector<std::int64_t> shape;              ///< Of one sample; the columns may lack a channel dim of 1.
  std::optional<TokenizerInfo> tokenizer;
  /// Per split that the original has (at least train): the arrays of the task, in arrays_of_task's order.
  std::map<std::string, std::vector<std::shared_ptr<const Column>>> splits;
  std::vector<InputColumn> columns;               ///< Of a table made from text.
  std::vector<std::string> ignored_columns = {};  ///< Of it: those that are no inputs; see DatasetInfo.
  std::vector<std::string> na_values = {};        ///< Of it: what else counted as a gap; see DatasetInfo.
  std::vector<InputInfo> inputs;                  ///< Of several inputs in a row.
  std::vector<std::string> sites;  ///< Names of the owners of rows; then a split's last column is their
                                   ///< number, int32 [n], behind the task's arrays.
  std::vector<SourceInfo> sources;
  std::vector<ColumnReport> table;   ///< Of a table made from text.
  std::vector<std::string> remarks;  ///< See StageReport.
  /// Completes what depends on which samples are train's, once that is known: `train` are their places in
  /// splits["train"]. Empty where nothing does.
  std::function<void(Originals& originals, std::span<const std::int64_t> train)> complete;
};

/// Makes sense of one's own arrays: uint8 [n, C, H, W] or [n, H, W] and float32 [n, C, H, W] are images;
/// float32 [n, F] and [n, T, F] and uint8 [n, F] (converted) are tables. int64 targets are classes, of the
/// sample, [n], or of its places, [n, H, W]; float32 and several per sample, [n, K], a regression's values.
/// `task`: table_classification or regression, where the user says it; else empty.
/// Fills task, classes, target_shape, shape and splits["train"]. Throws usage_error for a task that the
/// arrays do not fit, data_error naming `subject`, of which the inputs are, or `targets_subject`.
Originals from_arrays(std::shared_ptr<const Column> inputs, std::shared_ptr<const Column> targets,
                      const std::string& subject, const std::string& targets_subject,
                      const std::string& task = {});

/// Class names "0", "1", ... up to the largest target, of which each sample has so many. Throws data_error,
/// naming the sample, for a negative one or a million and more.
std::vector<std::string> classes_of(const std::vector<std::int64_t>& targets, const std::string& subject,
                                    std::int64_t per_sample = 1);

/// Throws data_error unless both have as many rows.
void require_same_count(const Column& inputs, const Column& targets, const std::string& inputs_name,
                        const std::string& targets_name);

}  // namespace dtrain::data
