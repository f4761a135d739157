#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "h5/library.hpp"
#include "state/saved_state.hpp"
#include "topology/mesh.hpp"

namespace dtrain::state {

/// What the ranks at one place along pipe and tensor hold: their part of the model as it was after a step.
struct HeldPart {
  std::int64_t step = 0;
  topology::MeshCoordinates where;
  std::vector<parallel::StateTensor> tensors;
  std::optional<checkpoint::CheckpointInfo> info;  ///< Of that step, if known here.
};

/// What became of the remains of a run.
struct Remains {
  std::int64_t step = 0;  ///< Of which there is a checkpoint now;
  std::string problem;    ///< or why there is none.
};

/// Saves, as a checkpoint, the newest step of which every part of the model is still held by some rank, by
/// the first of them. `held`: what this rank has, its own and copies of others'; `shape`: of the mesh before
/// the loss. The same result on every rank. `world`: those that are left. Collective over it, and blocking.
/// Throws Error (exit code 5) when another one is lost meanwhile.
Remains save_remains(const std::vector<HeldPart>& held, const topology::MeshShape& shape,
                     const std::filesystem::path& checkpoints, const comm::Communicator& world,
                     h5::Library& library);

}  // namespace dtrain::state
