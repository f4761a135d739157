#include "data/formats/table_target.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "data/import/originals.hpp"

namespace dtrain::data {
namespace {

// More whole numbers than this are counts or amounts, not names of classes.
constexpr std::size_t kMostNumberedClasses = 20;

}  // namespace

TableTarget::TableTarget(std::span<const TableText> files, const std::vector<TableColumn>& columns,
                         const StageOptions& options)
    : column_(&columns.back()), task_(options.task) {
  const std::string subject = "--target " + options.target;
  std::string name = options.target;
  if (const std::size_t sign = name.rfind('>'); sign != std::string::npos) {
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
    const std::string bound = options.target.substr(options.target.rfind('>') + 1);
    classes_ = {column_->name + "<=" + bound, column_->name + ">" + bound};
    return;
  }
  if (task_ == "regression") {
    require_small_numbers(files, *column_);
    return;
  }
  values_.emplace(files, *column_);
  const bool numbers =
      column_->numeric && !(values_->whole() && values_->names().size() <= kMostNumberedClasses);
  if (task_.empty()) task_ = numbers ? "regression" : "table_classification";
  if (is_regression()) {
    require_small_numbers(files, *column_);
  } else {
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

std::shared_ptr<const Column> TargetColumn::column() const {
  if (target_.is_regression()) return column_from(std::vector<float>(values_.begin(), values_.end()), {});
  return column_from(std::vector<std::int64_t>(values_.begin(), values_.end()), {});
}

}  // namespace dtrain::data
