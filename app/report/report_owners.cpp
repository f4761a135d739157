#include "report/report_owners.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <string_view>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/median.hpp"
#include "options/toml_file.hpp"
#include "report/report_table.hpp"

namespace dtrain::app {
namespace {

using record::Table;
using Align = TextTable::Align;

constexpr std::size_t kMostClients = 12;  // in a table; of more only what they come to together
constexpr std::size_t kMostRuns = 6;      // side by side

/// Whether clients are owners that the dataset names.
bool has_names(const Table& clients) {
  return clients.rows > 0 && clients.texts.contains("name") && !clients.texts.at("name")[0].empty();
}

std::vector<std::string> names_of(const Table& table) {
  for (const char* column : {"site", "name"}) {
    if (table.texts.contains(column) && !table.texts.at(column)[0].empty()) return table.texts.at(column);
  }
  std::vector<std::string> numbers;
  for (std::size_t row = 0; row < table.rows; ++row)
    numbers.push_back(fmt::format("{}", table.value("client", row)));
  return numbers;
}

/// How far the accuracies of owners are apart; each counts alike, whatever it has of samples.
struct Spread {
  std::vector<double> accuracies;
  double worst = 0;
  double middle = 0;
  double best = 0;
  double mean = 0;
  double deviation = 0;  // standard deviation over the owners
};

Spread spread_of(const Table& table) {
  Spread spread;
  for (std::size_t row = 0; row < table.rows; ++row) {
    const double accuracy = table.value("accuracy", row);
    if (!std::isnan(accuracy)) spread.accuracies.push_back(accuracy);
  }
  if (spread.accuracies.empty()) return spread;
  const auto count = static_cast<double>(spread.accuracies.size());
  spread.worst = std::ranges::min(spread.accuracies);
  spread.best = std::ranges::max(spread.accuracies);
  spread.middle = median(spread.accuracies);
  for (const double accuracy : spread.accuracies) spread.mean += accuracy / count;
  for (const double accuracy : spread.accuracies)
    spread.deviation += (accuracy - spread.mean) * (accuracy - spread.mean) / count;
  spread.deviation = std::sqrt(spread.deviation);
  return spread;
}

void print_table(const Table& owners, std::string_view word, std::ostream& out) {
  if (owners.rows == 0) return;
  if (owners.rows <= kMostClients || word == "site") {
    TextTable table({{std::string(word), Align::left},
                     {"samples"},
                     {"loss"},
                     {"acc.", Align::right, 6},
                     {"F1", Align::right, 6},
                     {"AUC", Align::right, 6}});
    const auto names = names_of(owners);
    for (std::size_t i = 0; i < owners.rows; ++i) {
      const auto at = [&](const char* column) { return owners.value(column, i); };
      table.row({clipped(names[i], 40), grouped_text(at("samples")), short_text(at("loss")),
                 fixed_text(at("accuracy"), 4), fixed_text(at("f1"), 4), fixed_text(at("auc"), 4)});
    }
    table.print(out);
  }
  const auto spread = spread_of(owners);
  if (spread.accuracies.empty()) return;
  out << fmt::format(
      "{}s: accuracy at worst {:.4f}, median {:.4f}, at best {:.4f}, mean {:.4f}, deviation {:.4f}\n", word,
      spread.worst, spread.middle, spread.best, spread.mean, spread.deviation);
}

/// A setting of the run's configuration; empty where its file has none that can be read.
std::string setting_of(const ReportedRun& run, const std::string& key) {
  const auto config = run.record.attributes.find("config");
  if (config == run.record.attributes.end()) return {};
  try {
    for (const FileEntry& entry : parse_toml(config->second, run.record.folder)) {
      if (entry.key == key && !entry.values.empty()) return entry.values.front();
    }
  } catch (const Error&) {
    return {};
  }
  return {};
}

/// What the runs are compared by: owners with names before clients without.
const Table& compared(const ReportedRun& run) {
  const auto& record = run.record;
  if (has_names(record.test_clients) || record.test_sites.rows == 0) return record.test_clients;
  return record.test_sites;
}

}  // namespace

void print_owners(const ReportedRun& run, std::ostream& out) {
  const auto& record = run.record;
  const bool named = has_names(record.test_clients);
  if (record.test_clients.rows > 0 && setting_of(run, "federated-rule") == "local")
    out << "clients trained alone: each has the scores of its own model\n";
  print_table(record.test_clients, named ? "site" : "client", out);
  if (!named) print_table(record.test_sites, "site", out);
}

void print_rounds(const ReportedRun& run, std::ostream& out) {
  const auto& rounds = run.record.rounds;
  if (rounds.rows == 0) return;
  double sampled = 0;
  double handed_in = 0;
  for (std::size_t i = 0; i < rounds.rows; ++i) {
    sampled += rounds.value("sampled", i);
    handed_in += rounds.value("handed_in", i);
  }
  const auto of = run.record.clients.rows;
  if (setting_of(run, "federated-rule") == "local") {
    out << fmt::format("rounds {}: {} trained alone\n", grouped_text(static_cast<double>(rounds.rows)),
                       counted(static_cast<std::int64_t>(of), "client"));
    return;
  }
  out << fmt::format("rounds {}: {} clients were sampled, and {} handed in{}\n",
                     grouped_text(static_cast<double>(rounds.rows)), grouped_text(sampled),
                     grouped_text(handed_in),
                     of > 0 ? fmt::format("; there are {}", grouped_text(static_cast<double>(of))) : "");
}

void print_privacy(const Table& privacy, std::ostream& out) {
  if (privacy.rows == 0) return;
  const auto last = privacy.rows - 1;
  out << fmt::format("privacy: epsilon {:.4g} at delta {:g} after step {}\n", privacy.value("epsilon", last),
                     privacy.value("delta", last), grouped_text(privacy.value("step", last)));
}

void compare_owners(const std::vector<ReportedRun>& runs, std::ostream& out) {
  const std::size_t shown = std::min(runs.size(), kMostRuns);
  std::vector<TextTable::Heading> headings = {{"", Align::left}};
  std::vector<std::string> order;  // names of owners, as they come
  std::vector<std::map<std::string, double>> found(shown);
  std::vector<Spread> spreads;
  bool any = false;
  for (std::size_t i = 0; i < shown; ++i) {
    const Table& table = compared(runs[i]);
    headings.push_back({clipped(runs[i].summary.name, 13)});
    spreads.push_back(spread_of(table));
    any = any || !spreads.back().accuracies.empty();
    if (table.rows == 0 || (table.rows > kMostClients && !has_names(table))) continue;
    const auto names = names_of(table);
    for (std::size_t row = 0; row < table.rows; ++row) {
      if (std::ranges::find(order, names[row]) == order.end()) order.push_back(names[row]);
      found[i][names[row]] = table.value("accuracy", row);
    }
  }
  if (!any) return;
  TextTable table(std::move(headings));
  for (const std::string& name : order) {
    std::vector<std::string> cells = {clipped(name, 20)};
    for (const auto& of_run : found)
      cells.push_back(of_run.contains(name) ? fixed_text(of_run.at(name), 4) : "");
    table.row(std::move(cells));
  }
  const auto row = [&](const char* title, double Spread::*member) {
    std::vector<std::string> cells = {title};
    for (const Spread& spread : spreads)
      cells.push_back(spread.accuracies.empty() ? "" : fixed_text(spread.*member, 4));
    table.row(std::move(cells));
  };
  row("worst", &Spread::worst);
  row("median", &Spread::middle);
  row("best", &Spread::best);
  row("mean", &Spread::mean);
  row("deviation", &Spread::deviation);
  std::vector<std::string> rounds = {"rounds"};
  std::vector<std::string> clients = {"clients"};
  std::vector<std::string> epsilon = {"epsilon"};
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& record = runs[i].record;
    const auto count = [](std::size_t rows) {
      return rows > 0 ? grouped_text(static_cast<double>(rows)) : std::string("-");
    };
    rounds.push_back(count(record.rounds.rows));
    clients.push_back(count(record.clients.rows));
    epsilon.push_back(record.privacy.rows > 0
                          ? fmt::format("{:.3g}", record.privacy.value("epsilon", record.privacy.rows - 1))
                          : "-");
  }
  table.row(std::move(rounds));
  table.row(std::move(clients));
  table.row(std::move(epsilon));
  out << "\ntest accuracy by owner or client (each counts alike)\n";
  table.print(out);
}

}  // namespace dtrain::app
