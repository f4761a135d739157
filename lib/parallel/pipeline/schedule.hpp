#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::parallel {

/// In which order the stages of a model work on a step's micro-batches.
enum class Pipelining {
  layerwise,    ///< One stage at work at a time: the baseline.
  gpipe,        ///< All forward, then all backward. Huang et al. 2019.
  one_f_one_b,  ///< Backward as soon as it can be, so that few activations live. Narayanan et al. 2019.
  eager,        ///< The same with a micro-batch to spare between two ranks: they need not be as fast as each
                ///< other at every moment, and more activations live. Zhuang et al. 2023.
  interleaved,  ///< As 1f1b with several stages per rank, which shortens the idle time. Narayanan et al.
                ///< 2021.
};

/// `1f1b`, `eager-1f1b`, `gpipe`, `interleaved` or `layerwise`. Throws Error (exit code 2).
Pipelining parse_pipelining(std::string_view name);
std::string_view name_of(Pipelining pipelining);

/// One piece of work of a rank.
struct Action {
  enum class Kind : std::uint8_t { forward, backward } kind = Kind::forward;
  int stage = 0;        ///< Of all the model's stages; stage s lies on rank s % ranks.
  int micro_batch = 0;  ///< Counts from 0 within what the pipeline does in a step.

  bool operator==(const Action&) const = default;
};

/// What each rank of a pipeline does, in which order: a list of actions per rank. A value; the messages that
/// travel follow from it.
struct Schedule {
  int ranks = 1;
  int stages_per_rank = 1;
  int micro_batches = 0;
  std::vector<std::vector<Action>> of_rank;

  int stages() const { return ranks * stages_per_rank; }
  int rank_of(int stage) const { return stage % ranks; }
};

/// Any number of micro-batches from 0 on. Only interleaved has `stages_per_rank` above 1. In every schedule
/// each stage takes the micro-batches back in ascending order, as one rank does.
Schedule make_schedule(Pipelining pipelining, int ranks, int stages_per_rank, int micro_batches);

/// Forward only: for evaluation.
Schedule make_forward_schedule(int ranks, int stages_per_rank, int micro_batches);

}  // namespace dtrain::parallel
