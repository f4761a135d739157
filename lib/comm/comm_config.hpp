#pragma once

#include <cstddef>
#include <string_view>

#include "comm/device/device_transport.hpp"
#include "comm/mpi/transfer.hpp"
#include "comm/queue.hpp"
#include "comm/types.hpp"
#include "topology/fabric.hpp"
#include "topology/mesh.hpp"

namespace dtrain::comm {

/// What carries buffers in devices' memory. Those in the CPU's go over MPI and shared memory.
enum class Backend { automatic, mpi, nccl };
Backend parse_backend(std::string_view name);  ///< auto, mpi, nccl. Throws Error (exit code 2).
std::string_view name_of(Backend backend);

/// How this rank communicates: what a run's options say, and what the job finds on the machine.
struct CommConfig {
  Backend backend =
      Backend::automatic;  ///< automatic: nccl where it can; mpi copies through the CPU's memory.
  Algorithm all_reduce = Algorithm::automatic;              ///< Where a call does not choose itself.
  topology::RankOrder order = topology::RankOrder::placed;  ///< As the mesh was made.
  Drive drive = Drive::inline_;                             ///< What moves the queue on; see queue.hpp.
  double timeout_s = 300;                      ///< Longest a started operation may take; above 0.
  int threads_per_rank = 1;                    ///< Compute threads: decides whether waits may spin.
  const DeviceTransport* transport = nullptr;  ///< Between the ranks' devices; null: there is none.
  int device = 0;                              ///< Of this rank; see DeviceGroupRequest.
  void* stream = nullptr;                      ///< Likewise.
  bool common_set_up = false;                  ///< CommonSetUp of the groups on devices.
  bool recovery = false;                       ///< MpiEnvironment::can_recover().
  std::size_t piece_bytes = kLongestPiece;     ///< Of a message between ranks; the same on all of them.
  const topology::Fabric* fabric = nullptr;  ///< Whose links delay messages; null: none. Outlives the groups.
  bool splits_data = false;                  ///< Groups::data_in_node() and data_across() are wanted.
  bool gathers_apart = false;                ///< Groups::data_gathers() is wanted.
  bool compares_all = false;  ///< All collectives between nodes, not only the first: MpiGroup::compare().

  void validate() const;  ///< Throws Error (exit code 2).
};

}  // namespace dtrain::comm
