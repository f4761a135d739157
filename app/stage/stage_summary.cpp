#include "stage/stage_summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/counted.hpp"
#include "core/printable.hpp"

namespace dtrain::app {
namespace {

using data::ColumnReport;

constexpr std::size_t kMostClasses = 10;
constexpr std::size_t kMostColumns = 30;
constexpr std::size_t kMostLabels = 6;
constexpr std::size_t kWidth = 40;  // of a name that others gave

std::string line(std::string_view what, std::string_view text) {
  return fmt::format("  {:<10}{}\n", what, text);
}

double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::string task_in_words(const data::DatasetInfo& info, const data::StageReport& report) {
  std::string text = info.task;
  const auto target = std::ranges::find(report.columns, ColumnReport::Role::target, &ColumnReport::role);
  if (!info.targets.empty())
    text += fmt::format(" of {} targets: {}", info.targets.size(),
                        printable(fmt::format("{}", fmt::join(info.targets, ", ")), 3 * kWidth));
  else if (target != report.columns.end())
    text += fmt::format(" of {}", printable(target->name, kWidth));
  if (!info.shape.empty()) text += fmt::format(", samples of [{}]", fmt::join(info.shape, ", "));
  if (info.tokenizer)
    text += fmt::format(", {} tokens by {}", grouped(std::ssize(info.tokenizer->vocabulary)),
                        info.tokenizer->kind);
  return text;
}

/// The most frequent first.
std::string classes_in_words(const data::DatasetInfo& info, const std::vector<std::int64_t>& counts) {
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t k) { return counts[k]; });
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(order.size(), kMostClasses); ++i)
    parts.push_back(fmt::format("{} {:.1f} %", printable(info.classes[order[i]], kWidth),
                                percent(counts[order[i]], total)));
  if (order.size() > kMostClasses) {
    const std::size_t least = order.back();
    parts.push_back(fmt::format("...; the rarest is {} with {} of {}", printable(info.classes[least], kWidth),
                                grouped(counts[least]), grouped(total)));
  }
  return fmt::format("{} in train: {}", counts.size(), fmt::join(parts, ", "));
}

/// The value that stands in the gaps of a column.
std::string filling_of(const data::DatasetInfo& info, const std::string& name) {
  const auto input = std::ranges::find_if(info.columns, [&](const data::InputColumn& column) {
    return column.name == name && column.label.empty() && !column.marks_gaps;
  });
  if (input != info.columns.end() && !input->part.empty()) return "the means of their parts";
  return input == info.columns.end() ? std::string("the labels' shares")
                                     : fmt::format("the mean {:.4g}", input->filled_with);
}

std::string labels_in_words(const std::vector<std::string>& all) {
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < std::min(all.size(), kMostLabels); ++i)
    labels.push_back(printable(all[i], kWidth));
  return fmt::format("{}: {}{}", counted(std::ssize(all), "label"), fmt::join(labels, ", "),
                     labels.size() < all.size() ? ", ..." : "");
}

std::string dates_in_words(const ColumnReport& column) {
  return fmt::format("dates from {} to {}", column.first_date, column.last_date);
}

/// How a regression is trained on it, unless that is its value.
std::string scaling_of_target(const data::DatasetInfo& info, const ColumnReport& column) {
  if (info.target_scales.empty()) return "";
  const auto name = std::ranges::find(info.targets, column.name);
  const auto at = name == info.targets.end() ? 0 : name - info.targets.begin();
  const auto& target = info.target_scales.at(static_cast<std::size_t>(at));
  return fmt::format(", trained on as (y - {:.4g}) / {:.4g}", target.shift, target.scale);
}

std::string column_in_words(const data::DatasetInfo& info, const ColumnReport& column) {
  if (column.role == ColumnReport::Role::ignored) return "left out";
  if (column.role == ColumnReport::Role::site) return "owner of the rows";
  std::string text = column.kind == ColumnReport::Kind::numbers  ? std::string("numbers")
                     : column.kind == ColumnReport::Kind::labels ? labels_in_words(column.labels)
                                                                 : dates_in_words(column);
  if (column.role == ColumnReport::Role::target) return "target, " + text + scaling_of_target(info, column);
  if (column.kind == ColumnReport::Kind::dates)
    text += ": years since then; sine and cosine of the place in " +
            std::string(column.has_times ? "year, week and day" : "year and week");
  const auto scaled = std::ranges::find_if(info.columns, [&](const data::InputColumn& input) {
    return input.name == column.name && (input.shift != 0 || input.scale != 1);
  });
  if (scaled != info.columns.end())
    text += fmt::format(", (x - {:.4g}) / {:.4g}", scaled->shift, scaled->scale);
  if (column.gaps > 0)
    text += fmt::format("; {} ({:.1f} %) filled with {} and marked", counted(column.gaps, "gap"),
                        percent(column.gaps, column.gaps + column.values), filling_of(info, column.name));
  return text;
}

}  // namespace

std::string stage_summary(const data::DatasetInfo& info, const data::StageReport& report) {
  std::string text = line("task", task_in_words(info, report));
  if (!report.samples_of_class.empty())
    text += line("classes", classes_in_words(info, report.samples_of_class));
  if (!info.sites.empty()) text += line("sites", grouped(std::ssize(info.sites)));
  const auto inputs = std::ranges::count(report.columns, ColumnReport::Role::input, &ColumnReport::role);
  if (!report.columns.empty())
    text += line("inputs",
                 fmt::format("{} from {}", grouped(std::ssize(info.columns)), counted(inputs, "column")));
  for (std::size_t i = 0; i < std::min(report.columns.size(), kMostColumns); ++i)
    text += fmt::format("    {:<16}  {}\n", printable(report.columns[i].name, kWidth),
                        column_in_words(info, report.columns[i]));
  if (report.columns.size() > kMostColumns)
    text += fmt::format("    and {} more: dataset.json has all\n", report.columns.size() - kMostColumns);
  for (const std::string& remark : report.remarks) text += line("note", remark);
  return text;
}

}  // namespace dtrain::app
