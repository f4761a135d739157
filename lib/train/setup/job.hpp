#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "checkpoint/manifest.hpp"
#include "comm/collectives/algorithm_table.hpp"
#include "comm/emulation/virtual_clock.hpp"
#include "comm/groups.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "core/span_sink.hpp"
#include "data/source.hpp"
#include "parallel/device/device_clock.hpp"
#include "parallel/device/rank_device.hpp"
#include "parallel/tensor/tensor_ranks.hpp"
#include "state/ranks.hpp"
#include "topology/cluster.hpp"
#include "topology/mesh.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// Where this run executes: its ranks, their places, the mesh over them, and the groups that communicate.
/// Made once, in the same order on every rank.
class Job {
 public:
  /// Collective over mpi.world(). `measures`: which all_reduce is fastest, where that is not known yet.
  /// `earlier`: the table of the run that is resumed; it holds on the same layout. Sets LibTorch's thread
  /// count, before any helper thread exists. Throws Error when the ranks were started with different
  /// configurations, or the mesh does not fit.
  Job(const RunConfig& config, const comm::MpiEnvironment& mpi, SpanSink& sink, bool measures = false,
      const checkpoint::AllReduceTable& earlier = {});

  /// Until then ranks may take long to copy or read files: comm::LongPhase. Returns when all have come.
  /// Collective.
  void end_preparation();

  comm::Communicator& world() { return world_; }
  const topology::Cluster& cluster() const { return cluster_; }
  const topology::Mesh& mesh() const { return mesh_; }
  comm::Groups& groups() { return groups_; }
  /// The ranks that share each layer of a copy of the model; null where a rank has whole layers.
  models::TensorGroup* tensor_ranks() { return groups_.tensor().size() > 1 ? &tensor_ranks_ : nullptr; }
  /// Whether this rank counts what its tensor group has in common: one of it does.
  bool speaks_for_tensor_group() { return groups_.tensor().rank() == 0; }
  int rank() const { return world_.rank(); }
  /// This rank in MPI_COMM_WORLD at the start: its name in messages and files.
  int first_rank() const { return cluster_.ranks[static_cast<std::size_t>(rank())].first_rank; }
  /// What all_reduces do in data groups that span nodes; empty where nothing was measured.
  const comm::AlgorithmTable& all_reduce_table() const { return all_reduce_table_; }
  /// The same as checkpoints keep it.
  checkpoint::AllReduceTable kept_table() const { return {layout_, all_reduce_table_.to_string()}; }
  int threads() const { return threads_; }  ///< Compute threads of this rank.
  at::Device device() const { return at::Device(device_.name); }
  const parallel::RankDevice& rank_device() const { return device_; }
  /// What shows the times of an emulated machine; null: none does.
  comm::VirtualClock* virtual_clock() const { return virtual_clock_.get(); }
  /// Null where the CPU computes.
  parallel::DeviceClock* device_clock() const { return device_clock_.get(); }

  /// True where a core is left for a helper thread such as the loader's.
  bool has_spare_core() const;

  /// Those over which the model's state is spread. They borrow this job.
  state::Ranks state_ranks() { return {world_, groups_, mesh_}; }

  /// The ranks of this node, for data. The team borrows this job.
  data::NodeTeam team();

 private:
  comm::Communicator world_;
  comm::LongPhase preparation_;
  parallel::RankDevice device_;  // opened before anything computes
  topology::Cluster cluster_;
  int threads_;
  topology::Mesh mesh_;
  std::unique_ptr<comm::VirtualClock> virtual_clock_;
  std::unique_ptr<parallel::DeviceClock> device_clock_;  // what the groups tell their spans, on a device
  comm::Groups groups_;
  std::string layout_;  // what a table of all_reduce holds for; empty: none is of use here
  comm::AlgorithmTable all_reduce_table_;
  parallel::TensorRanks tensor_ranks_;
  std::string token_;
};

}  // namespace dtrain::train
