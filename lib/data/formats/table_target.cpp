#include "data/formats/table_target.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "data/import/originals.hpp"
#include "data/shards/column_over.hpp"

namespace dtrain::data {
namespace {

// More whole numbers than this are counts or amounts, not names of classes.
constexpr std::size_t kMostNumberedClasses = 20;

bool is_column(const std::vector<TableColumn>& columns, const std::string& name) {
  return std::ranges::find(columns, name, &TableColumn::name) != columns.end();
}

/// The columns that --target names. Nothing: the last.
std::vector<std::string> target_names(const std::vector<TableColumn>& columns, const std::string& text) {
  if (text.empty()) return {text};
  // Of COL>VALUE the name may have commas, too.
  const std::size_t sign = text.rfind('>');
  if (sign != std::string::npos && is_column(columns, text.substr(0, sign))) return {text};
  const auto names = listed_columns(text, names_of(columns));
  if (names.empty())
    throw usage_error("names no column", "--target " + text, "write it like --target COL or COL,COL");
  return names;
}

}  // namespace

TableTarget::TableTarget(std::span<const TableText> files, const std::vector<TableColumn>& columns,
                         const std::string& wanted, const std::string& task)
    : column_(&columns.back()), task_(task) {
  const std::string subject = "--target " + wanted;
  std::string name = wanted;
  const std::size_t sign = name.rfind('>');
  if (sign != std::string::npos && !is_column(columns, name)) {
    double bound = 0;
    if (!read_number(std::string_view(name).substr(sign + 1), bound))
      throw usage_error("has no number behind >", subject, "write it like --target COL>0");
    threshold_ = bound;
    name.resize(sign);
  }
  if (!name.empty()) column_ = &find_column(columns, name, "--target");
  require_plain_dates(files, *column_);
  if (column_->dates)
    throw usage_error("has dates in that column, neither classes nor numbers", subject,
                      "name another column, or write the date as a number, such as days");
  require_plain_numbers(files, *column_);
  if (!column_->numeric && (threshold_ || task_ == "regression"))
    throw usage_error("has labels in that column, not numbers", subject,
                      "name a column of numbers, or leave the threshold or --task out");
  if (threshold_ && task_ == "regression")
    throw usage_error("makes classes", subject, "leave the threshold or --task regression out");
  if (threshold_) {
    task_ = "table_classification";
    const std::string bound = wanted.substr(wanted.rfind('>') + 1);
    classes_ = {column_->name + "<=" + bound, column_->name + ">" + bound};
    return;
  }
  if (task_ == "regression") {
    require_small_numbers(files, *column_);
    return;
  }
  const bool numbers = column_->numeric && !has_few_whole_numbers(files, *column_, kMostNumberedClasses);
  if (task_.empty()) task_ = numbers ? "regression" : "table_classification";
  if (is_regression()) {
    require_small_numbers(files, *column_);
  } else {
    values_.emplace(files, *column_);
    classes_ = values_->names();
  }
}

double TableTarget::value(const TableText& file, std::int64_t row) const {
  const std::string_view cell = file.cell(row, column_->index);
  if (is_missing(cell))
    throw data_error(
        fmt::format("has no value in the target column {} in line {}", column_->name, file.line(row)),
        file.origin(), "leave the row out, or choose another --target");
  double number = 0;
  if (threshold_) return read_number(cell, number) && number > *threshold_ ? 1 : 0;
  if (!is_regression()) return static_cast<double>(values_->position_of(cell));
  read_number(cell, number);
  return number;
}

TableTargets::TableTargets(std::span<const TableText> files, const std::vector<TableColumn>& columns,
                           const StageOptions& options) {
  const auto wanted = target_names(columns, options.target);
  if (wanted.size() == 1) {
    all_.emplace_back(files, columns, wanted.front(), options.task);
    return;
  }
  const std::string subject = "--target " + options.target;
  if (options.task == "table_classification")
    throw usage_error("names several columns, and a classification has one target", subject,
                      "name one column, or use --task regression");
  for (const std::string& name : wanted) {
    if (name.find('>') != std::string::npos && !is_column(columns, name))
      throw usage_error("makes classes of one of several targets", subject,
                        "name one target, or columns of numbers");
    TableTarget target(files, columns, name, "regression");
    if (contains(target.column()))
      throw usage_error(fmt::format("names the column {} twice", target.column().name), subject,
                        "name each target once");
    all_.push_back(std::move(target));
  }
}

std::vector<std::string> TableTargets::names() const {
  std::vector<std::string> names;
  if (all_.size() > 1)
    for (const TableTarget& target : all_) names.push_back(target.column().name);
  return names;
}

bool TableTargets::contains(const TableColumn& column) const {
  return std::ranges::any_of(all_, [&](const TableTarget& t) { return t.column().index == column.index; });
}

void TableTargets::Rows::add(const TableText& file, std::int64_t row) {
  for (const TableTarget& target : targets_.all_) values_.push_back(target.value(file, row));
}

std::int64_t TableTargets::Rows::count() const {
  return static_cast<std::int64_t>(values_.size() / targets_.all_.size());
}

std::shared_ptr<const Column> TableTargets::Rows::column() const {
  std::vector<std::int64_t> row_shape;
  if (targets_.all_.size() > 1) row_shape.push_back(static_cast<std::int64_t>(targets_.all_.size()));
  if (targets_.all_.front().is_regression())
    return column_over(std::vector<float>(values_.begin(), values_.end()), row_shape);
  return column_over(std::vector<std::int64_t>(values_.begin(), values_.end()), row_shape);
}

}  // namespace dtrain::data
