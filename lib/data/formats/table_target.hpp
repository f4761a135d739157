#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/formats/table_columns.hpp"
#include "data/import/stage.hpp"
#include "data/shards/column.hpp"

namespace dtrain::data {

/// What one column of a table is to predict: classes or numbers.
class TableTarget {
 public:
  /// `wanted`: the column's name or number, or `COL>VALUE`; `task`: see StageOptions. The others must outlive
  /// it. Throws usage_error: no such column, text that is to be a number.
  TableTarget(std::span<const TableText> files, const std::vector<TableColumn>& columns,
              const std::string& wanted, const std::string& task);

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

/// All that a table is to predict (options.target, options.task): one column, or the numbers of several.
class TableTargets {
 public:
  /// The arguments must outlive it. Throws usage_error like TableTarget, and where one of several columns has
  /// no numbers or is named twice.
  TableTargets(std::span<const TableText> files, const std::vector<TableColumn>& columns,
               const StageOptions& options);

  const std::string& task() const { return all_.front().task(); }
  const std::vector<std::string>& classes() const { return all_.front().classes(); }
  /// Of the columns; empty where there is one.
  std::vector<std::string> names() const;
  bool contains(const TableColumn& column) const;

  /// The targets of a split, row by row.
  class Rows {
   public:
    /// `rows`: that there will be.
    Rows(const TableTargets& targets, std::int64_t rows) : targets_(targets) {
      values_.reserve(static_cast<std::size_t>(rows) * targets.all_.size());
    }
    void add(const TableText& file, std::int64_t row);
    std::int64_t count() const;
    /// [rows], of several columns [rows, columns]; int64 for classes and float32 for numbers.
    std::shared_ptr<const Column> column() const;

   private:
    const TableTargets& targets_;
    std::vector<double> values_;
  };

 private:
  std::vector<TableTarget> all_;  // at least one
};

}  // namespace dtrain::data
