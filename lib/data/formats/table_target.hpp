#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/formats/table_columns.hpp"
#include "data/import/stage.hpp"
#include "data/shards/column.hpp"

namespace dtrain::data {

/// What a table is to predict: classes or numbers, from one of its columns (options.target, options.task).
class TableTarget {
 public:
  /// The arguments must outlive it. Throws usage_error: no such column, text that is to be a number.
  TableTarget(std::span<const TableText> files, const std::vector<TableColumn>& columns,
              const StageOptions& options);

  const TableColumn& column() const { return *column_; }
  const std::string& task() const { return task_; }  ///< table_classification or regression.
  const std::vector<std::string>& classes() const { return classes_; }  ///< Empty for a regression.
  bool is_regression() const { return task_ == "regression"; }

  /// Of a row: its class or its number. Throws data_error naming the line where there is none.
  double value(const TableText& file, std::int64_t row) const;

 private:
  const TableColumn* column_;
  std::optional<double> threshold_;  // of COL>VALUE
  std::optional<ColumnValues> values_;
  std::string task_;
  std::vector<std::string> classes_;
};

/// The targets of a split, row by row.
class TargetColumn {
 public:
  explicit TargetColumn(const TableTarget& target) : target_(target) {}
  void add(const TableText& file, std::int64_t row) { values_.push_back(target_.value(file, row)); }
  std::int64_t rows() const { return static_cast<std::int64_t>(values_.size()); }
  /// [rows], int64 for classes and float32 for numbers.
  std::shared_ptr<const Column> column() const;

 private:
  const TableTarget& target_;
  std::vector<double> values_;
};

}  // namespace dtrain::data
