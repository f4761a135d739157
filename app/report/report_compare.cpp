#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <set>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "options/toml_file.hpp"
#include "report/report_owners.hpp"
#include "report/report_table.hpp"
#include "report/report_text.hpp"

namespace dtrain::app {
namespace {

using record::Table;
using Align = TextTable::Align;

constexpr std::size_t kNameWidth = 18;
constexpr std::size_t kColumnsOfCurves = 6;  // as many runs fit side by side

// Exposed communication and waiting for a pipeline's neighbours: what more ranks cost.
double waiting_share(const RunSummary& summary) {
  const double waiting_s = summary.mean_phase_s[static_cast<std::size_t>(Phase::exposed_communication)] +
                           summary.mean_phase_s[static_cast<std::size_t>(Phase::pipeline_idle)];
  return waiting_s / summary.mean_train_time_s;
}

bool all_nan(const Table& table, const std::string& column) {
  return !table.has(column) || std::all_of(table.column(column).begin(), table.column(column).end(),
                                           [](double value) { return std::isnan(value); });
}

// The curve that every run has: validation where it was done.
std::string common_curve(const std::vector<ReportedRun>& runs) {
  for (const char* column : {"validation_accuracy", "validation_loss"}) {
    if (std::none_of(runs.begin(), runs.end(),
                     [column](const ReportedRun& run) { return all_nan(run.record.epochs, column); })) {
      return column;
    }
  }
  return "train_loss";
}

void print_curves(const std::vector<ReportedRun>& runs, std::ostream& out) {
  const std::string column = common_curve(runs);
  const std::size_t shown = std::min(runs.size(), kColumnsOfCurves);
  std::vector<TextTable::Heading> headings = {{"epoch"}};
  // By number: a run that was begun from another run's checkpoint has no row of the epochs before.
  std::map<double, std::vector<std::string>> rows;
  for (std::size_t i = 0; i < shown; ++i) {
    headings.push_back({clipped(runs[i].summary.name, 13)});
    const Table& epochs = runs[i].record.epochs;
    for (std::size_t row = 0; row < epochs.rows; ++row) {
      const double epoch = epochs.value("epoch", row);
      if (std::isnan(epoch)) continue;
      auto& cells = rows[epoch];
      cells.resize(1 + shown);
      cells[0] = grouped_text(epoch);
      if (epochs.has(column)) cells[1 + i] = fixed_text(epochs.column(column)[row], 4);
    }
  }
  TextTable table(std::move(headings));
  for (auto& [epoch, cells] : rows) table.row(std::move(cells));
  std::string title = column;
  std::replace(title.begin(), title.end(), '_', ' ');
  out << title << " by epoch" << (shown < runs.size() ? fmt::format(" (the first {} runs)", shown) : "")
      << '\n';
  table.print(out);
}

/// The options of a run that say how it trains; none where its file has none that can be read.
std::map<std::string, std::string> settings_of(const ReportedRun& run) {
  static const std::set<std::string> kNoSettings = {"name", "output", "overwrite", "quiet", "resume"};
  std::map<std::string, std::string> settings;
  const auto config = run.record.attributes.find("config");
  if (config == run.record.attributes.end()) return settings;
  try {
    for (const FileEntry& entry : parse_toml(config->second, run.record.folder)) {
      if (!kNoSettings.contains(entry.key))
        settings[entry.key] = printable(fmt::format("{}", fmt::join(entry.values, " ")));
    }
  } catch (const Error&) {
    return {};
  }
  return settings;
}

/// The settings that are not the same in all runs.
void print_differences(const std::vector<ReportedRun>& runs, std::ostream& out) {
  constexpr std::size_t kOptionWidth = 20;
  constexpr std::size_t kValueWidth = 11;
  const std::size_t shown = std::min(runs.size(), kColumnsOfCurves);
  std::vector<TextTable::Heading> headings = {{"option", Align::left}};
  std::vector<std::map<std::string, std::string>> settings;
  std::set<std::string> names;
  for (std::size_t i = 0; i < shown; ++i) {
    headings.push_back({clipped(runs[i].summary.name, kValueWidth)});
    settings.push_back(settings_of(runs[i]));
    for (const auto& [name, value] : settings.back()) names.insert(name);
  }
  TextTable table(std::move(headings));
  bool differ = false;
  for (const std::string& name : names) {
    std::vector<std::string> cells = {clipped(printable(name), kOptionWidth)};
    std::set<std::string> values;
    for (const auto& of_run : settings) {
      const auto found = of_run.find(name);
      values.insert(found == of_run.end() ? "" : found->second);
      cells.push_back(found == of_run.end() ? "-" : clipped(found->second, kValueWidth));
    }
    if (values.size() < 2) continue;
    table.row(std::move(cells));
    differ = true;
  }
  if (runs.size() < 2) return;
  out << (differ ? "\noptions that differ\n" : "\nno option differs\n");
  if (differ) table.print(out);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_number(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

}  // namespace

void print_comparison(const std::vector<ReportedRun>& runs, std::ostream& out) {
  TextTable table({{"run", Align::left},
                   {"status", Align::left},
                   {"ranks"},
                   {"epochs"},
                   {"samples/s"},
                   {"ratio"},
                   {"FLOP/s"},
                   {"waiting"},
                   {"best loss"},
                   {"acc."}});
  const double first = runs.empty() ? 1 : runs.front().summary.samples_per_s;
  for (const ReportedRun& run : runs) {
    const RunSummary& summary = run.summary;
    table.row({clipped(summary.name, kNameWidth), std::string(record::status_name(run.record.status)),
               std::to_string(summary.ranks), grouped_text(summary.epochs), speed_text(summary.samples_per_s),
               fixed_text(summary.samples_per_s / first, 2), si_text(summary.flops_per_s),
               percent_text(waiting_share(summary)), short_text(summary.best_validation_loss),
               fixed_text(summary.best_validation_accuracy, 4)});
  }
  table.print(out);
  out << "  ratio: samples/s over the first run's; waiting: exposed communication and idle pipelines;\n"
         "  best loss and acc.: of validation\n\n";
  print_curves(runs, out);
  compare_owners(runs, out);
  print_differences(runs, out);
}

void print_epochs_csv(const std::vector<ReportedRun>& runs, std::ostream& out) {
  std::vector<std::string> columns;  // of all runs, in the order of their files
  for (const ReportedRun& run : runs) {
    for (const std::string& name : run.record.epochs.order) {
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  out << "run";
  for (const std::string& name : columns) out << ',' << csv_field(name);
  out << '\n';
  for (const ReportedRun& run : runs) {
    const Table& epochs = run.record.epochs;
    for (std::size_t i = 0; i < epochs.rows; ++i) {
      out << csv_field(run.summary.name);
      for (const std::string& name : columns) {
        out << ',' << (epochs.numbers.contains(name) ? csv_number(epochs.column(name)[i]) : "");
      }
      out << '\n';
    }
  }
}

void print_comparison_csv(const std::vector<ReportedRun>& runs, std::ostream& out) {
  out << "run,status,model,dataset,strategy,mesh,ranks,nodes,epochs,samples,train_time_s,samples_per_s,"
         "model_flops_per_s,waiting_share,validation_loss,validation_accuracy,test_loss,test_accuracy,"
         "slowest_rank_cost_s\n";
  for (const ReportedRun& run : runs) {
    const RunSummary& summary = run.summary;
    out << csv_field(summary.name) << ',' << record::status_name(run.record.status);
    for (const char* name : {"model", "dataset", "strategy", "mesh"}) {
      const auto found = run.record.attributes.find(name);
      out << ',' << (found == run.record.attributes.end() ? "" : csv_field(found->second));
    }
    out << ',' << summary.ranks << ',' << summary.nodes;
    for (const double value :
         {summary.epochs, summary.samples, summary.train_time_s, summary.samples_per_s, summary.flops_per_s,
          waiting_share(summary), summary.best_validation_loss, summary.best_validation_accuracy,
          summary.test_loss, summary.test_accuracy, summary.lost_s}) {
      out << ',' << csv_number(value);
    }
    out << '\n';
  }
}

}  // namespace dtrain::app
