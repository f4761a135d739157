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

/// Rows of float32 or float64.
void gather(const Column& rows, std::span<const std::int64_t> ids, std::vector<double>& values) {
  if (rows.type() == ElementType::float64) {
    rows.gather(ids, reinterpret_cast<std::byte*>(values.data()));
    return;
  }
  std::vector<float> stored(values.size());
  rows.gather(ids, reinterpret_cast<std::byte*>(stored.data()));
  std::ranges::copy(stored, values.begin());
}

/// Hands the rows `ids` of [n, width] to `take`, one after another.
template <typename Take>
void for_each_row(const Column& rows, std::span<const std::int64_t> ids, std::size_t width,
                  const Take& take) {
  constexpr std::size_t kBurst = 4096;  // rows
  std::vector<double> values;
  for (std::size_t first = 0; first < ids.size(); first += kBurst) {
    const auto some = ids.subspan(first, std::min(kBurst, ids.size() - first));
    values.resize(some.size() * width);
    gather(rows, some, values);
    for (std::size_t row = 0; row < some.size(); ++row) take(values.data() + row * width);
  }
}

/// Means of what is there in each column, 0 where nothing is. Each value counts from its column's first one,
/// so that the mean of equal values is exactly theirs, and their deviation 0.
std::vector<double> means_of(const Column& rows, std::span<const std::int64_t> ids, std::size_t width) {
  std::vector<double> firsts(width);
  std::vector<double> sums(width);
  std::vector<double> counts(width);
  for_each_row(rows, ids, width, [&](const double* row) {
    for (std::size_t i = 0; i < width; ++i) {
      if (std::isnan(row[i])) continue;
      if (counts[i] == 0) firsts[i] = row[i];
      sums[i] += row[i] - firsts[i];
      ++counts[i];
    }
  });
  for (std::size_t i = 0; i < width; ++i) sums[i] = counts[i] > 0 ? firsts[i] + sums[i] / counts[i] : 0.0;
  return sums;
}

/// Of each column the standard deviation from `means`, 1 where there is none; a gap lies at the mean.
std::vector<double> deviations_of(const Column& rows, std::span<const std::int64_t> ids,
                                  const std::vector<double>& means) {
  std::vector<double> squares(means.size());
  for_each_row(rows, ids, means.size(), [&](const double* row) {
    for (std::size_t i = 0; i < means.size(); ++i) {
      const double distance = std::isnan(row[i]) ? 0.0 : row[i] - means[i];
      squares[i] += distance * distance;
    }
  });
  for (double& square : squares)
    square = square > 0 ? std::sqrt(square / static_cast<double>(std::max<std::size_t>(ids.size(), 1))) : 1.0;
  return squares;
}

/// What becomes of each column, by train's rows.
void measure(std::vector<InputColumn>& columns, const Column& rows, std::span<const std::int64_t> train,
             Scaling scaling) {
  const auto means = means_of(rows, train, columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i].filled_with = means[i];
  if (scaling == Scaling::none) return;
  const auto deviations = deviations_of(rows, train, means);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!is_scaled(columns[i])) continue;
    columns[i].shift = means[i];
    columns[i].scale = deviations[i];
  }
}

}  // namespace

void fill_gaps(Originals& originals, std::span<const std::int64_t> train, Scaling scaling) {
  const std::size_t width = originals.columns.size();
  measure(originals.columns, *originals.splits.at("train").front(), train, scaling);
  for (auto& [split, arrays] : originals.splits) {
    const auto rows = read_whole<double>(*arrays.front());
    std::vector<float> scaled(rows.size());
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const InputColumn& column = originals.columns[k % width];
      const double value = std::isnan(rows[k]) ? column.filled_with : rows[k];
      scaled[k] = static_cast<float>((value - column.shift) / column.scale);
    }
    arrays.front() = column_over(std::move(scaled), {static_cast<std::int64_t>(width)});
  }
}

void scale_targets(Originals& originals, std::span<const std::int64_t> train) {
  const Column& targets = *originals.splits.at("train").at(1);
  const auto means = means_of(targets, train, static_cast<std::size_t>(element_count(targets.row_shape())));
  const auto deviations = deviations_of(targets, train, means);
  for (std::size_t k = 0; k < means.size(); ++k)
    originals.target_scales.push_back({.shift = means[k], .scale = deviations[k]});
}

}  // namespace dtrain::data
