#pragma once

#include <string>

#include "h5/library.hpp"
#include "topology/cluster.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// What `--memory-limit` chooses where the user gave no such option.
struct MemoryChoice {
  std::string strategy;
  std::string recompute;
  int micro_batches = 0;
  std::string words;  ///< All of it in a sentence.
};

/// Which of the options that it chooses are open: all but those that the user gave. `micro_batches`: whether
/// their number may still be chosen; that of a run which goes on is kept. With `--reproducible` it is not
/// chosen: results depend on it, and what fits depends on the mesh.
struct OpenOptions {
  bool strategy = false;
  bool recompute = false;
  bool micro_batches = false;
  bool any() const { return strategy || recompute || micro_batches; }
};
OpenOptions open_options(const RunConfig& config, bool micro_batches);

/// Of what may run on the ranks of `cluster`, the first whose estimate keeps within the limit, in this order:
/// `ddp`, `zero1`, `zero2`, `zero3`; then the same with layers that run again in backward; then all of that
/// with twice as many micro-batches, and so on. `config`: resolved, valid, with a limit. `recovers`: whether
/// the run goes on after a loss. Opens the dataset and makes the model once, by this process alone.
/// Throws Error (exit code 2) where none does, and names the nearest.
MemoryChoice choose_within_limit(const RunConfig& config, const OpenOptions& open,
                                 const topology::Cluster& cluster, bool recovers, h5::Library& library);

}  // namespace dtrain::train
