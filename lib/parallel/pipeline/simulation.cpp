#include "parallel/pipeline/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

using Key = std::pair<int, int>;  // stage, micro-batch

class Run {
 public:
  Run(const Schedule& schedule, const ActionCosts& costs)
      : schedule_(schedule), costs_(costs), next_(schedule.of_rank.size()), clock_(schedule.of_rank.size()) {
    result_.of_rank.resize(schedule.of_rank.size());
    result_.peak_live.resize(schedule.of_rank.size());
    live_.resize(schedule.of_rank.size());
  }

  Simulation result() {
    while (advance_all()) {
    }
    check_complete();
    double busy = 0;
    for (const auto& timed : result_.of_rank) {
      for (const auto& one : timed) busy += one.end - one.start;
      if (!timed.empty()) result_.duration = std::max(result_.duration, timed.back().end);
    }
    const double all = result_.duration * schedule_.ranks;
    result_.idle_share = all > 0 ? 1 - busy / all : 0;
    return std::move(result_);
  }

 private:
  bool advance_all() {
    bool moved = false;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      while (advance(rank)) moved = true;
    }
    return moved;
  }

  bool advance(std::size_t rank) {
    const auto& actions = schedule_.of_rank[rank];
    if (next_[rank] == actions.size()) return false;
    const Action& action = actions[next_[rank]];
    const auto ready = ready_at(action);
    if (!ready) return false;
    const bool forward = action.kind == Action::Kind::forward;
    auto& ends = forward ? forward_ends_ : backward_ends_;
    const Key key{action.stage, action.micro_batch};
    require(!ends.contains(key), "a schedule does the same twice", {.subject = text(action)});
    const double start = std::max(clock_[rank], *ready);
    const double end = start + (forward ? costs_.forward : costs_.backward);
    ends[key] = clock_[rank] = end;
    result_.of_rank[rank].push_back({action, start, end});
    live_[rank] += forward ? 1 : -1;
    result_.peak_live[rank] = std::max(result_.peak_live[rank], live_[rank]);
    ++next_[rank];
    return true;
  }

  /// Empty while something it needs has not been done.
  std::optional<double> ready_at(const Action& action) const {
    const Key key{action.stage, action.micro_batch};
    if (action.kind == Action::Kind::forward) {
      return action.stage == 0 ? 0.0 : arrival(forward_ends_, {action.stage - 1, action.micro_batch});
    }
    const auto own = forward_ends_.find(key);
    if (own == forward_ends_.end()) return std::nullopt;
    if (action.stage == schedule_.stages() - 1) return own->second;
    return arrival(backward_ends_, {action.stage + 1, action.micro_batch});
  }

  std::optional<double> arrival(const std::map<Key, double>& ends, Key key) const {
    const auto place = ends.find(key);
    if (place == ends.end()) return std::nullopt;
    return place->second + costs_.transfer;
  }

  void check_complete() const {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] == schedule_.of_rank[rank].size()) continue;
      throw Error("a schedule stands still: " + text(schedule_.of_rank[rank][next_[rank]]) +
                      " waits for what never happens",
                  {.subject = fmt::format("pipeline rank {}", rank)});
    }
    const auto all = static_cast<std::size_t>(schedule_.stages()) * schedule_.micro_batches;
    require(forward_ends_.size() == all && (backward_ends_.empty() || backward_ends_.size() == all),
            "a schedule leaves micro-batches out", {.subject = "pipeline"});
  }

  static std::string text(const Action& action) {
    return fmt::format("{} of micro-batch {} at stage {}",
                       action.kind == Action::Kind::forward ? "forward" : "backward", action.micro_batch,
                       action.stage);
  }

  const Schedule& schedule_;
  ActionCosts costs_;
  Simulation result_;
  std::vector<std::size_t> next_;
  std::vector<double> clock_;
  std::vector<int> live_;
  std::map<Key, double> forward_ends_;
  std::map<Key, double> backward_ends_;
};

/// Of a rank's stages: a to z, then aa, ab, ... A rank may have more stages than there are letters.
std::string letters_of(int stage) {
  std::string letters;
  for (; stage >= 0; stage = stage / 26 - 1)
    letters.insert(letters.begin(), static_cast<char>('a' + stage % 26));
  return letters;
}

std::string cell(const Schedule& schedule, const Action& action) {
  std::string text =
      fmt::format("{}{}", action.kind == Action::Kind::forward ? 'F' : 'B', action.micro_batch + 1);
  if (schedule.stages_per_rank > 1) text += letters_of(action.stage / schedule.ranks);
  return text;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const ActionCosts& costs) {
  return Run(schedule, costs).result();
}

std::string drawing(const Schedule& schedule) {
  const auto simulation = simulate(schedule);
  std::size_t width = 0;
  for (const auto& actions : schedule.of_rank) {
    for (const auto& action : actions) width = std::max(width, cell(schedule, action).size() + 1);
  }
  const auto column = [width](double time) { return static_cast<std::size_t>(std::lround(time)) * width; };
  std::string text;
  for (std::size_t rank = 0; rank < simulation.of_rank.size(); ++rank) {
    std::string line(column(simulation.duration), ' ');
    for (const auto& timed : simulation.of_rank[rank]) {
      const auto begin = column(timed.start);
      line.replace(begin, column(timed.end) - begin - 1, column(timed.end) - begin - 1, '-');
      const auto name = cell(schedule, timed.action);
      line.replace(begin, name.size(), name);
    }
    text += fmt::format("rank {:>2} | {}\n", rank, line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return text;
}

}  // namespace dtrain::parallel
