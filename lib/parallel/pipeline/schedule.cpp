#include "parallel/pipeline/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/slice.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"layerwise", "gpipe", "1f1b", "eager-1f1b",
                                                    "interleaved"};

/// The micro-batches go through a rank's stages in groups: as many groups as each can have one micro-batch
/// for every rank, and as even as can be. (With a short last group an interleaved schedule can stand still.)
std::vector<Range> groups_of(const Schedule& schedule) {
  const int count = std::max(1, schedule.micro_batches / schedule.ranks);
  std::vector<Range> groups;
  for (int i = 0; i < count; ++i) groups.push_back(part_of(schedule.micro_batches, i, count));
  return groups;
}

/// The order in which a rank meets its (stage, micro-batch) pairs.
std::vector<Action> passes(const Schedule& schedule, int rank, Action::Kind kind) {
  std::vector<Action> actions;
  for (const Range& group : groups_of(schedule)) {
    for (int i = 0; i < schedule.stages_per_rank; ++i) {
      const int place = kind == Action::Kind::forward ? i : schedule.stages_per_rank - 1 - i;
      for (auto m = group.begin; m < group.end; ++m)
        actions.push_back({kind, place * schedule.ranks + rank, static_cast<int>(m)});
    }
  }
  return actions;
}

/// `warm_up` forward passes, then one forward and one backward in turn, then the backward passes that are
/// left.
std::vector<Action> alternate(const std::vector<Action>& forward, const std::vector<Action>& backward,
                              std::size_t warm_up) {
  warm_up = std::min(warm_up, forward.size());
  std::vector<Action> actions(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(warm_up));
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (warm_up + i < forward.size()) actions.push_back(forward[warm_up + i]);
    actions.push_back(backward[i]);
  }
  return actions;
}

/// Forward passes before a rank's first backward one.
std::size_t warm_up_of(Pipelining pipelining, const Schedule& schedule, int rank) {
  const int after = schedule.ranks - 1 - rank;  // ranks that a micro-batch has yet to pass
  if (pipelining == Pipelining::layerwise) return 0;
  if (pipelining == Pipelining::gpipe) return static_cast<std::size_t>(schedule.micro_batches);
  if (pipelining == Pipelining::eager) return static_cast<std::size_t>(2 * after);
  if (schedule.stages_per_rank == 1) return static_cast<std::size_t>(after);
  std::int64_t largest = 0;
  for (const Range& group : groups_of(schedule)) largest = std::max(largest, group.size());
  return static_cast<std::size_t>(2 * after + (schedule.stages_per_rank - 1) * largest);
}

}  // namespace

Pipelining parse_pipelining(std::string_view name) {
  const auto place = std::ranges::find(kNames, name);
  if (place != kNames.end()) return static_cast<Pipelining>(place - kNames.begin());
  throw usage_error(fmt::format("there is no pipeline schedule \"{}\"", name), "--pipeline",
                    "use one of 1f1b, eager-1f1b, gpipe, interleaved, layerwise");
}

std::string_view name_of(Pipelining pipelining) { return kNames[static_cast<std::size_t>(pipelining)]; }

Schedule make_schedule(Pipelining pipelining, int ranks, int stages_per_rank, int micro_batches) {
  require(ranks >= 1 && stages_per_rank >= 1 && micro_batches >= 0 &&
              (stages_per_rank == 1 || pipelining == Pipelining::interleaved),
          fmt::format("there is no such schedule for {} ranks with {} stages each and {} micro-batches",
                      ranks, stages_per_rank, micro_batches),
          {.subject = std::string(name_of(pipelining)), .code = ExitCode::usage});
  Schedule schedule{
      .ranks = ranks, .stages_per_rank = stages_per_rank, .micro_batches = micro_batches, .of_rank = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.of_rank.push_back(alternate(passes(schedule, rank, Action::Kind::forward),
                                         passes(schedule, rank, Action::Kind::backward),
                                         warm_up_of(pipelining, schedule, rank)));
  }
  return schedule;
}

Schedule make_forward_schedule(int ranks, int stages_per_rank, int micro_batches) {
  Schedule schedule{
      .ranks = ranks, .stages_per_rank = stages_per_rank, .micro_batches = micro_batches, .of_rank = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.of_rank.push_back(passes(schedule, rank, Action::Kind::forward));
  }
  return schedule;
}

}  // namespace dtrain::parallel
