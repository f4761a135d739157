#include "report/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "core/counted.hpp"
#include "record/rows.hpp"
#include "report/report_owners.hpp"
#include "report/report_table.hpp"

namespace dtrain::app {
namespace {

using record::Status;
using record::Table;
using Align = TextTable::Align;

std::string attribute(const ReportedRun& run, const std::string& name) {
  const auto found = run.record.attributes.find(name);
  return found == run.record.attributes.end() || found->second.empty() ? "-" : found->second;
}

std::string status_line(const ReportedRun& run) {
  switch (run.record.status) {
    case Status::running:
      return "running";
    case Status::completed:
      return "completed";
    case Status::preempted:
      return "preempted: stopped on request";
    case Status::failed:
      return "failed: what was recorded is shown";
    case Status::incomplete:
      break;
  }
  return "incomplete: it ended without saying so; rows up to its last flush are shown";
}

/// A row of /epochs is a round in a federated run.
const char* period_of(const ReportedRun& run) { return run.record.rounds.rows > 0 ? "round" : "epoch"; }

TextTable::Headings headings_for(std::size_t first) {
  return first == 0 ? TextTable::Headings::shown : TextTable::Headings::hidden;
}

// Columns that the model added to those every run has.
void print_own_columns(const ReportedRun& run, std::size_t first, std::ostream& out) {
  const Table& epochs = run.record.epochs;
  const auto last_common = std::find(epochs.order.begin(), epochs.order.end(), "learning_rate");
  if (last_common == epochs.order.end() || last_common + 1 == epochs.order.end()) return;
  const std::vector<std::string> own(last_common + 1, epochs.order.end());
  std::vector<TextTable::Heading> headings = {{period_of(run)}};
  for (const std::string& name : own) headings.push_back({clipped(name, 40)});
  TextTable table(std::move(headings));
  for (std::size_t i = first; i < epochs.rows; ++i) {
    std::vector<std::string> cells = {grouped_text(epochs.value("epoch", i))};
    for (const std::string& name : own) cells.push_back(short_text(epochs.value(name, i)));
    table.row(std::move(cells));
  }
  table.print(out, headings_for(first));
}

// Three significant digits: a small one in scientific notation is still narrow.
std::string rate_text(double rate) { return std::isnan(rate) ? "-" : fmt::format("{:.3g}", rate); }

/// Something that a rank has recorded, `KIND: DETAIL`.
struct Event {
  double time_s;
  int rank;
  std::string text;
  bool routine;
};

/// Orders events by time and keeps the newest `count`, routine ones only where others leave room. Whether
/// some are left out.
bool keep_newest(std::vector<Event>& events, std::size_t count) {
  const auto earlier = [](const Event& a, const Event& b) { return a.time_s < b.time_s; };
  std::stable_sort(events.begin(), events.end(), earlier);
  if (events.size() <= count) return false;
  std::reverse(events.begin(), events.end());
  std::stable_partition(events.begin(), events.end(), [](const Event& event) { return !event.routine; });
  events.resize(count);
  std::reverse(events.begin(), events.end());
  std::stable_sort(events.begin(), events.end(), earlier);
  return true;
}

void print_event(const Event& event, std::ostream& out) {
  const auto line = fmt::format("  {:>8} s  rank {}  {}", seconds_text(event.time_s), event.rank, event.text);
  out << wrapped(line, kReportWidth, 21) << '\n';  // below the text
}

std::string bar(double share, std::size_t width) {
  const double filled = std::round(std::clamp(share, 0.0, 1.0) * static_cast<double>(width));
  return std::string(static_cast<std::size_t>(filled), '#');
}

}  // namespace

void print_heading(const ReportedRun& run, std::ostream& out) {
  out << clipped(run.summary.name, kReportWidth) << '\n';
  const auto line = [&out](const char* what, const std::string& text) {
    out << wrapped(fmt::format("  {:<10}{}", what, text), kReportWidth, 12) << '\n';
  };
  line("status", status_line(run));
  const Status status = run.record.status;
  if (status != Status::running && status != Status::completed)
    line("resume", "the same command resumes it, if it has a checkpoint");
  line("model", attribute(run, "model") + " on " + attribute(run, "dataset"));
  std::string ranks = counted(run.summary.ranks, "rank");
  if (run.summary.nodes > 0) ranks += " on " + counted(run.summary.nodes, "node");
  line("layout", fmt::format("{}, {}, {}", ranks, attribute(run, "mesh"), attribute(run, "strategy")));
  if (attribute(run, "emulated") != "-") line("emulated", attribute(run, "emulated"));
  line("started", attribute(run, "start_time_utc"));
  if (attribute(run, "end_time_utc") != "-") line("ended", attribute(run, "end_time_utc"));
  line("dtrain", attribute(run, "dtrain_version"));
  for (const std::string& problem : run.record.unreadable) line("left out", problem);
  if (attribute(run, "unreadable_ranks") != "-") line("left out", attribute(run, "unreadable_ranks"));
}

void print_step(const ReportedRun& run, const NewestStep& step, std::ostream& out) {
  out << fmt::format("  step {} of {} {}: loss {}, {:.3f} s\n", grouped_text(static_cast<double>(step.step)),
                     period_of(run), grouped_text(static_cast<double>(step.epoch)), short_text(step.loss),
                     step.time_s);
}

void print_epochs(const ReportedRun& run, std::size_t first, std::ostream& out) {
  const Table& epochs = run.record.epochs;
  TextTable table({{period_of(run)},
                   {"train loss"},
                   {"acc.", Align::right, 6},
                   {"valid. loss"},
                   {"acc.", Align::right, 6},
                   {"samples", Align::right, 9},
                   {"train s"},
                   {"samples/s"},
                   {"FLOP/s"},
                   {"rate", Align::right, 7}});
  for (std::size_t i = first; i < epochs.rows; ++i) {
    const auto at = [&](const char* column) { return epochs.value(column, i); };
    table.row({grouped_text(at("epoch")), short_text(at("train_loss")), fixed_text(at("train_accuracy"), 4),
               short_text(at("validation_loss")), fixed_text(at("validation_accuracy"), 4),
               grouped_text(at("samples")), seconds_text(at("train_time_s")), speed_text(at("samples_per_s")),
               si_text(at("model_flops_per_s")), rate_text(at("learning_rate"))});
  }
  table.print(out, headings_for(first));
  print_own_columns(run, first, out);
}

void print_test(const Table& test, std::ostream& out) {
  static const std::set<std::string> kOfEachTest = {"loss", "accuracy", "samples", "time_s"};
  for (std::size_t i = 0; i < test.rows; ++i) {
    std::string line = fmt::format("test  loss {}", short_text(test.value("loss", i)));
    const double accuracy = test.value("accuracy", i);
    if (!std::isnan(accuracy)) line += fmt::format(", accuracy {:.4f}", accuracy);
    // What stands for the accuracy where there is none, such as r2.
    for (const std::string& name : test.order) {
      if (std::isnan(accuracy) && !kOfEachTest.contains(name) && test.numbers.contains(name))
        line += fmt::format(", {} {}", name, short_text(test.value(name, i)));
    }
    line += fmt::format(", {} samples in {} s", grouped_text(test.value("samples", i)),
                        seconds_text(test.value("time_s", i)));
    if (test.has("checkpoint")) line += ", " + test.texts.at("checkpoint")[i];
    out << clipped(line, kReportWidth) << '\n';
  }
}

void print_ranks(const ReportedRun& run, std::ostream& out) {
  if (run.summary.by_rank.empty()) return;
  const bool steps = std::any_of(run.summary.by_rank.begin(), run.summary.by_rank.end(),
                                 [](const RankSummary& rank) { return rank.last_step > 0; });
  // How far each came matters while a run lasts or after it broke off, its validation afterwards.
  TextTable table({{"rank"},
                   {"host", Align::left},
                   {"device", Align::left},
                   {"samples"},
                   {"train s"},
                   {"own s"},
                   {steps ? "last step" : "valid. s"},
                   {"sent"},
                   {"received"},
                   {"memory"}});
  for (const RankSummary& rank : run.summary.by_rank) {
    table.row({std::to_string(rank.rank), clipped(rank.hostname, 12), clipped(rank.device, 7),
               grouped_text(rank.samples), seconds_text(rank.train_time_s), seconds_text(rank.own_time_s()),
               steps ? grouped_text(rank.last_step) : seconds_text(rank.validation_time_s),
               bytes_text(rank.bytes_sent), bytes_text(rank.bytes_received),
               bytes_text(rank.peak_memory_bytes)});
  }
  out << "ranks (own s: training without waiting for others; memory: at its peak)\n";
  table.print(out);
}

void print_phases(const ReportedRun& run, std::ostream& out) {
  const RunSummary& summary = run.summary;
  if (summary.by_rank.empty() || !(summary.mean_train_time_s > 0)) return;
  TextTable table({{"", Align::left}, {"mean s"}, {"least s"}, {"most s"}, {"share"}, {"", Align::left}});
  for (std::size_t i = 0; i < kPhases; ++i) {
    const double mean_s = summary.mean_phase_s[i];
    if (mean_s <= 0) continue;
    double least_s = std::numeric_limits<double>::infinity();
    double most_s = 0;
    for (const RankSummary& rank : summary.by_rank) {
      if (!rank.throughout) continue;
      least_s = std::min(least_s, rank.phase_s[i]);
      most_s = std::max(most_s, rank.phase_s[i]);
    }
    const double share = mean_s / summary.mean_train_time_s;
    std::string name(phase_name(static_cast<Phase>(i)));
    std::replace(name.begin(), name.end(), '_', ' ');
    table.row({name, seconds_text(mean_s), seconds_text(least_s), seconds_text(most_s), percent_text(share),
               i < kExclusivePhases ? bar(share, 40) : "(beside the others)"});
  }
  const auto all = std::ssize(summary.by_rank);
  const auto throughout = std::ranges::count(summary.by_rank, true, &RankSummary::throughout);
  out << fmt::format("where time went (mean over {}, {} s of training)\n",
                     throughout == all ? std::string("ranks")
                                       : fmt::format("the {} of {} ranks that were there in all {}s",
                                                     throughout, all, period_of(run)),
                     seconds_text(summary.mean_train_time_s));
  table.print(out);
}

void print_slow_ranks(const ReportedRun& run, std::ostream& out) {
  const RunSummary& summary = run.summary;
  if (std::ranges::count(summary.by_rank, true, &RankSummary::throughout) < 2) return;
  for (const SlowRank& rank : summary.slow) {
    const std::string where = rank.hostname.empty() ? "" : " (" + rank.hostname + ")";
    out << clipped(
               fmt::format("rank {}{} is slower than the median by {:.0f} %: {} s of its own against {} s",
                           rank.rank, where, 100 * rank.over_median, seconds_text(rank.own_time_s),
                           seconds_text(rank.usual_s)),
               kReportWidth)
        << '\n';
  }
  if (summary.slow.empty()) {
    out << "no rank is slower than the median by more than 10 %\n";
    return;
  }
  out << fmt::format("cost: the others waited about {} s for rank {}, {} of training\n",
                     seconds_text(summary.lost_s), summary.slow.front().rank,
                     percent_text(summary.lost_s / summary.mean_train_time_s));
}

void print_events(const ReportedRun& run, std::ostream& out) {
  constexpr std::size_t kShown = 10;
  std::vector<Event> events;
  std::map<std::string, Event> newest_measurements;  // by kind
  for (const record::RankRecord& rank : run.record.ranks) {
    for (std::size_t i = 0; i < rank.events.rows; ++i) {
      const std::string& kind = rank.events.texts.at("kind")[i];
      const Event event{rank.events.column("time_s")[i], rank.rank,
                        kind + ": " + rank.events.texts.at("detail")[i], record::is_routine(kind)};
      if (!record::is_measurement(kind)) {
        events.push_back(event);
      } else if (auto& newest = newest_measurements.try_emplace(kind, event).first->second;
                 event.time_s > newest.time_s) {
        newest = event;
      }
    }
  }
  const std::size_t all = events.size();
  const bool some_left_out = keep_newest(events, kShown);
  if (!events.empty()) {
    out << (some_left_out
                ? fmt::format("\nevents ({} of {}: the newest that change the run, then the newest)\n",
                              events.size(), all)
                : "\nevents\n");
  }
  for (const Event& event : events) print_event(event, out);
  if (newest_measurements.empty()) return;
  out << "\nmeasured (the newest of each kind; results.h5 has those of each rank)\n";
  for (const auto& [kind, event] : newest_measurements) print_event(event, out);
}

void print_run(const ReportedRun& run, std::ostream& out) {
  print_heading(run, out);
  out << '\n';
  if (run.record.epochs.rows > 0) {
    print_epochs(run, 0, out);
  } else {
    out << fmt::format("no {} has ended\n", period_of(run));
  }
  print_test(run.record.test, out);
  print_owners(run, out);
  print_rounds(run, out);
  print_privacy(run.record.privacy, out);
  if (run.summary.train_time_s > 0) {
    out << fmt::format("all   {} samples in {} s of training: {} samples/s, {}FLOP/s\n",
                       grouped_text(run.summary.samples), seconds_text(run.summary.train_time_s),
                       speed_text(run.summary.samples_per_s), si_text(run.summary.flops_per_s));
  }
  out << '\n';
  print_ranks(run, out);
  out << '\n';
  print_phases(run, out);
  print_slow_ranks(run, out);
  print_events(run, out);
}

}  // namespace dtrain::app
