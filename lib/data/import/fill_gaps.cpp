#include "data/import/fill_gaps.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "data/shards/column_over.hpp"

namespace dtrain::data {
namespace {

/// Labels, marks and sines lie around 0 as they are.
bool is_scaled(const InputColumn& column) {
  return column.label.empty() && !column.marks_gaps && (column.part.empty() || column.part == "years");
}

/// Hands the rows `ids` of float32 [n, width] to `take`, one after another.
template <typename Take>
void for_each_row(const Column& rows, std::span<const std::int64_t> ids, std::size_t width,
                  const Take& take) {
  constexpr std::size_t kBurst = 4096;  // rows
  std::vector<float> values;
  for (std::size_t first = 0; first < ids.size(); first += kBurst) {
    const auto some = ids.subspan(first, std::min(kBurst, ids.size() - first));
    values.resize(some.size() * width);
    rows.gather(some, reinterpret_cast<std::byte*>(values.data()));
    for (std::size_t row = 0; row < some.size(); ++row) take(values.data() + row * width);
  }
}

/// Mean and standard deviation of what is there in each column, in two passes.
void measure(std::vector<InputColumn>& columns, const Column& rows, std::span<const std::int64_t> train,
             Scaling scaling) {
  const std::size_t width = columns.size();
  std::vector<double> sums(width);
  std::vector<double> counts(width);
  for_each_row(rows, train, width, [&](const float* row) {
    for (std::size_t i = 0; i < width; ++i) {
      if (std::isnan(row[i])) continue;
      sums[i] += double{row[i]};
      ++counts[i];
    }
  });
  for (std::size_t i = 0; i < width; ++i) columns[i].filled_with = counts[i] > 0 ? sums[i] / counts[i] : 0.0;
  if (scaling == Scaling::none) return;
  std::vector<double> squares(width);  // a filled gap lies at the mean
  for_each_row(rows, train, width, [&](const float* row) {
    for (std::size_t i = 0; i < width; ++i) {
      const double distance = std::isnan(row[i]) ? 0.0 : double{row[i]} - columns[i].filled_with;
      squares[i] += distance * distance;
    }
  });
  for (std::size_t i = 0; i < width; ++i) {
    if (!is_scaled(columns[i])) continue;
    columns[i].shift = columns[i].filled_with;
    const double deviation =
        std::sqrt(squares[i] / static_cast<double>(std::max<std::size_t>(train.size(), 1)));
    columns[i].scale = deviation > 0 ? deviation : 1.0;
  }
}

}  // namespace

void fill_gaps(Originals& originals, std::span<const std::int64_t> train, Scaling scaling) {
  const std::size_t width = originals.columns.size();
  measure(originals.columns, *originals.splits.at("train").front(), train, scaling);
  for (auto& [split, arrays] : originals.splits) {
    auto rows = read_whole<float>(*arrays.front());
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const InputColumn& column = originals.columns[k % width];
      const double value = std::isnan(rows[k]) ? column.filled_with : double{rows[k]};
      rows[k] = static_cast<float>((value - column.shift) / column.scale);
    }
    arrays.front() = column_over(std::move(rows), {static_cast<std::int64_t>(width)});
  }
}

}  // namespace dtrain::data
