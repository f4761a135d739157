#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "comm/mpi/communicator.hpp"

namespace dtrain::state {

/// Where a run goes on: a checkpoint all of whose files are as they were written.
struct ResumePoint {
  std::filesystem::path folder;
  checkpoint::CheckpointInfo info;
  bool own = true;                       ///< Of the run's own folder: its results are continued.
  std::vector<std::string> passed_over;  ///< Newer checkpoints that are damaged, and how.
  std::string forgotten_best = {};       ///< Why its best is another than it was; empty where it is not.
};

/// The newest valid checkpoint below `checkpoints`; damaged ones are renamed to step-NNNNNNNN.damaged. Where
/// the best that it knows of is not valid, the one that `best` points to takes its place, or else the
/// checkpoint itself; `best` points to it then. The ranks share the work of checking. Nothing where there is
/// none. Collective. Throws Error (exit code 4) when there are checkpoints and all are damaged.
std::optional<ResumePoint> newest_valid(const std::filesystem::path& checkpoints,
                                        const comm::Communicator& world);

/// The checkpoint in `folder`, or of a run's folder the newest valid one, which is looked for only: the run
/// may be another user's, or under way. Collective. Throws Error (exit code 4) naming the file at fault.
ResumePoint resume_point(const std::filesystem::path& folder, const comm::Communicator& world);

/// Throws Error (exit code 3) when the samples of the dataset called `dataset`, `now`, are others than the
/// run had: the checkpoint's position means nothing in them. Of checkpoints from before they kept a hash the
/// position must be one that steps of `global_batch` samples come to; 0: not known.
void check_same_dataset(const ResumePoint& point, const checkpoint::DatasetIdentity& now,
                        const std::string& dataset, std::int64_t global_batch);

/// Checks each byte of the checkpoint in `folder`; the ranks share the work. Collective. Throws Error (exit
/// code 4) naming the file at fault, the same on all ranks.
void check_together(const std::filesystem::path& folder, const comm::Communicator& world);

}  // namespace dtrain::state
