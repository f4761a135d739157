#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/shards/array.hpp"

namespace dtrain::data {

/// The ranks of one node, as values: data never asks MPI for them.
struct NodeTeam {
  int local_rank = 0;
  int local_size = 1;
  int node = 0;  ///< In [0, nodes): which of them read what first.
  int nodes = 1;
  std::string token = "0";  ///< Names this run on this node: the same on all its ranks, never used again.
  /// Gives each rank of the node what all of them say, by local rank, once all have called it. Collective
  /// over the node; may stay empty when local_size is 1.
  std::function<std::vector<std::string>(const std::string& mine)> exchange;

  std::vector<std::string> share(const std::string& mine) const {
    return exchange ? exchange(mine) : std::vector<std::string>{mine};
  }
};

/// How staged files are read.
struct ReadOptions {
  /// `--staging`: in place, or one copy per node in shared memory (collective over the team).
  enum class Staging { none, memory };
  Staging staging = Staging::none;
  NodeTeam team;
  /// A split up to this size is read and verified when it is opened and stays in the process's memory: damage
  /// shows at the start, and a sample costs no system call. Larger ones are read from the page cache, each
  /// chunk verified when it is first touched.
  std::size_t cache_bytes = std::size_t{256} << 20;
  /// Limit of a dataset that must be read whole because its layout cannot be read in place (compressed,
  /// chunked across samples, another number type).
  std::size_t whole_bytes = std::size_t{4} << 30;
};

/// The samples of one split, wherever they lie.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual std::int64_t samples() const = 0;

  /// The tokens of each sample, of a pair those of both sides; empty where all samples are of one size. Reads
  /// no tokens.
  virtual std::vector<std::int64_t> lengths() const { return {}; }

  /// Fills a batch with the given samples, in the given order.
  /// Shapes: images and tables: inputs [n, ...] as stored (uint8 or float32), targets [n] (int64, float32 for
  ///         regression). Text: inputs int32 [n, T], T the longest of the batch, padded with id 0; targets
  ///         int64 [n]. Pairs: inputs and targets int32 [n, T], each padded to its longest. Language
  ///         modelling: one block each, inputs int32 [n, T], targets int32 [n, T] one token further.
  /// Thread-safe. Throws data_error naming file, dataset and chunk when the data are damaged.
  virtual void gather(std::span<const std::int64_t> ids, HostArray& inputs, HostArray& targets) const = 0;

  /// The targets alone, without reading the inputs where they lie apart.
  virtual void gather_targets(std::span<const std::int64_t> ids, HostArray& targets) const {
    HostArray inputs;
    gather(ids, inputs, targets);
  }
};

}  // namespace dtrain::data
