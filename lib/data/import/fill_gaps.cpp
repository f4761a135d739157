#include "data/import/fill_gaps.hpp"

#include <algorithm>
#include <cmath>

namespace dtrain::data {
namespace {

/// Labels, marks and sines lie around 0 as they are.
bool is_scaled(const InputColumn& column) {
  return column.label.empty() && !column.marks_gaps && (column.part.empty() || column.part == "years");
}

/// Mean and standard deviation of what is there, in two passes.
void measure(InputColumn& column, std::span<const float> rows, std::size_t width, std::size_t index,
             std::span<const std::int64_t> train, Scaling scaling) {
  const auto at = [&](std::int64_t row) {
    return double{rows[static_cast<std::size_t>(row) * width + index]};
  };
  double sum = 0;
  double count = 0;
  for (const std::int64_t row : train) {
    if (std::isnan(at(row))) continue;
    sum += at(row);
    ++count;
  }
  column.filled_with = count > 0 ? sum / count : 0.0;
  if (scaling == Scaling::none || !is_scaled(column)) return;
  double squares = 0;  // a filled gap lies at the mean
  for (const std::int64_t row : train)
    if (!std::isnan(at(row))) squares += (at(row) - column.filled_with) * (at(row) - column.filled_with);
  column.shift = column.filled_with;
  const double deviation = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(train.size(), 1)));
  column.scale = deviation > 0 ? deviation : 1.0;
}

}  // namespace

void fill_gaps(Originals& originals, std::span<const std::int64_t> train, Scaling scaling) {
  const std::size_t width = originals.columns.size();
  const auto train_rows = read_whole<float>(*originals.splits.at("train").front());
  for (std::size_t i = 0; i < width; ++i) measure(originals.columns[i], train_rows, width, i, train, scaling);
  for (auto& [split, arrays] : originals.splits) {
    auto rows = read_whole<float>(*arrays.front());
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const InputColumn& column = originals.columns[k % width];
      const double value = std::isnan(rows[k]) ? column.filled_with : double{rows[k]};
      rows[k] = static_cast<float>((value - column.shift) / column.scale);
    }
    arrays.front() = column_from(rows, {static_cast<std::int64_t>(width)});
  }
}

}  // namespace dtrain::data
