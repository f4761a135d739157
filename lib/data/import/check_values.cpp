#include "data/import/check_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "data/sample_sources.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kCheckedBurstBytes = std::size_t{4} << 20;

/// Calls good(value) for all values of a column; the index of the first that is not, or -1.
template <typename T, typename Good>
std::int64_t first_odd(const Column& column, const Good& good) {
  const std::int64_t of_row = static_cast<std::int64_t>(column.row_bytes() / sizeof(T));
  if (of_row == 0) return -1;
  const std::int64_t burst =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kCheckedBurstBytes / column.row_bytes()));
  std::vector<T> values;
  for (std::int64_t first = 0; first < column.rows(); first += burst) {
    const std::int64_t count = std::min(burst, column.rows() - first);
    values.resize(static_cast<std::size_t>(count * of_row));
    column.read(first, count, reinterpret_cast<std::byte*>(values.data()));
    const auto odd = std::ranges::find_if_not(values, good);
    if (odd != values.end()) return first * of_row + (odd - values.begin());
  }
  return -1;
}

template <typename T>
T value_at(const Column& column, std::int64_t index) {
  const std::int64_t of_row = static_cast<std::int64_t>(column.row_bytes() / sizeof(T));
  std::vector<T> row(static_cast<std::size_t>(of_row));
  column.read(index / of_row, 1, reinterpret_cast<std::byte*>(row.data()));
  return row[static_cast<std::size_t>(index % of_row)];
}

bool is_small(const Column& column, const CheckedSizes& sizes) {
  return static_cast<std::size_t>(column.rows()) * column.row_bytes() <= sizes.most_bytes;
}

void check_finite(const Column& column, const char* what, const std::string& subject,
                  std::int64_t first_sample) {
  if (column.type() != ElementType::float32) return;
  const auto odd = first_odd<float>(column, [](float value) { return std::isfinite(value); });
  if (odd < 0) return;
  const std::int64_t of_row = static_cast<std::int64_t>(column.row_bytes() / sizeof(float));
  const auto place = of_row == 1 ? std::string() : fmt::format(", element {} of it", odd % of_row);
  throw data_error(fmt::format("has {} as the {} of sample {}{}", value_at<float>(column, odd), what,
                               first_sample + odd / of_row, place),
                   subject, "leave the sample out, or write a finite float32 there");
}

/// Of rows of several inputs, those that are ids.
void check_ids(const Column& rows, const std::vector<InputInfo>& inputs, const std::string& subject,
               std::int64_t first_sample) {
  if (rows.type() != ElementType::float32) return;
  std::vector<std::int64_t> below;  // of each element of a row; 0: any number
  std::vector<const InputInfo*> owner;
  for (const InputInfo& input : inputs) {
    below.insert(below.end(), static_cast<std::size_t>(element_count(input.shape)), input.ids);
    owner.resize(below.size(), &input);
  }
  const bool is_row = below.size() * sizeof(float) == rows.row_bytes();
  if (!is_row || std::ranges::all_of(below, [](std::int64_t ids) { return ids == 0; })) return;
  std::size_t place = below.size() - 1;
  const auto odd = first_odd<float>(rows, [&](float value) {
    place = place + 1 == below.size() ? 0 : place + 1;
    const auto ids = static_cast<float>(below[place]);
    return ids == 0 || (value >= 0 && value < ids && value == std::floor(value));
  });
  if (odd < 0) return;
  const auto of_row = static_cast<std::int64_t>(rows.row_bytes() / sizeof(float));
  const InputInfo& input = *owner.at(static_cast<std::size_t>(odd % of_row));
  throw data_error(
      fmt::format("has {} in the input {} of sample {}, whose ids are 0 to {}", value_at<float>(rows, odd),
                  printable(input.name, 50), first_sample + odd / of_row, input.ids - 1),
      subject, "write an id there, or stage the dataset again");
}

void check_classes(const Column& targets, std::int64_t classes, const std::string& subject,
                   std::int64_t first_sample) {
  const auto odd = first_odd<std::int64_t>(
      targets, [classes](std::int64_t value) { return value >= 0 && value < classes; });
  if (odd < 0) return;
  const auto of_row = static_cast<std::int64_t>(targets.row_bytes() / sizeof(std::int64_t));
  throw data_error(
      fmt::format("has the class {} as the target of sample {}, and there are the classes 0 to {}",
                  value_at<std::int64_t>(targets, odd), first_sample + odd / of_row, classes - 1),
      subject, "correct the target and stage the dataset again");
}

void check_tokens(const Column& tokens, std::int64_t vocabulary, const std::string& subject,
                  const CheckedSizes& sizes) {
  if (!is_small(tokens, sizes) || vocabulary == 0) return;
  const auto odd = first_odd<std::int32_t>(
      tokens, [vocabulary](std::int32_t token) { return token >= 0 && token < vocabulary; });
  if (odd < 0) return;
  throw data_error(fmt::format("has the token {} at place {}, and the vocabulary has {} tokens",
                               value_at<std::int32_t>(tokens, odd), odd, vocabulary),
                   subject, "stage the dataset again");
}

}  // namespace

void ValueCheck::operator()(const std::vector<std::shared_ptr<const Column>>& columns,
                            const std::string& subject, std::int64_t first_sample,
                            const CheckedSizes& sizes) const {
  switch (layout_of_task(task)) {
    case SampleLayout::text:
      check_tokens(*columns.at(0), vocabulary, subject, sizes);
      return check_classes(*columns.at(2), classes, subject, first_sample);
    case SampleLayout::pairs:
      check_tokens(*columns.at(0), vocabulary, subject, sizes);
      return check_tokens(*columns.at(2), target_vocabulary, subject, sizes);
    case SampleLayout::blocks:
      return check_tokens(*columns.at(0), vocabulary, subject, sizes);
    case SampleLayout::dense:
      break;
  }
  if (is_small(*columns.at(0), sizes)) {
    check_finite(*columns.at(0), "input", subject, first_sample);
    check_ids(*columns.at(0), inputs, subject, first_sample);
  }
  if (columns.at(1)->type() == ElementType::int64) {
    check_classes(*columns.at(1), classes, subject, first_sample);
  } else {
    check_finite(*columns.at(1), "target", subject, first_sample);
  }
}

ValueCheck value_check(const DatasetInfo& info) {
  ValueCheck check{
      .task = info.task, .classes = static_cast<std::int64_t>(info.classes.size()), .inputs = info.inputs};
  if (info.tokenizer) {
    check.vocabulary = static_cast<std::int64_t>(info.tokenizer->vocabulary.size());
    check.target_vocabulary = static_cast<std::int64_t>(info.tokenizer->target_vocabulary.size());
  }
  return check;
}

}  // namespace dtrain::data
