#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain::record {

/// What the one-line file `state` and the attribute `status` say. `incomplete` (only in results.h5): the run
/// ended without saying so, and `dtrain report` gathered what it left.
enum class Status { running, completed, preempted, failed, incomplete };
std::string_view status_name(Status status);
std::optional<Status> parse_status(std::string_view name);

// Paths inside the run folder OUTPUT/NAME.
std::string results_path(const std::string& folder);               ///< results.h5
std::string state_path(const std::string& folder);                 ///< state
std::string rank_path(const std::string& folder, int rank);        ///< ranks/rank-00000.h5
std::string trace_part_path(const std::string& folder, int rank);  ///< ranks/trace-00000.json
std::string trace_path(const std::string& folder);                 ///< trace.json
std::string tensorboard_folder(const std::string& folder);         ///< tensorboard
std::string rank_group(int rank);                                  ///< /ranks/00000

/// Makes the run folder and `ranks/` in it, with the folders above; nothing when they exist. Throws Error
/// (exit code 2) that names the folder when it cannot be written.
void create_run_folder(const std::string& folder);

/// Replaces the file `state` by rename: the last act of a run. On a full disk it is written in place. Throws
/// Error.
void write_state(const std::string& folder, Status status);

/// Returns when the disk has the file or the names in the folder `path`. A file system that cannot sync
/// passes. Throws Error.
void sync_to_disk(const std::string& path);

/// nullopt where there is no readable `state`.
std::optional<Status> read_state(const std::string& folder);

/// Writes `text` to PATH.partial and renames it to PATH, so that a reader sees the old or the new. Throws
/// Error.
void replace_file(const std::string& path, std::string_view text);

/// The same, and returns when the disk has it: after a loss of power there is the old or the new text, too.
/// Throws Error.
void replace_file_durably(const std::string& path, std::string_view text);

}  // namespace dtrain::record
