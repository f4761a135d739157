#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace dtrain::app {

/// Whether a folder is that of a run: it has a `state` that dtrain wrote, or its results.h5.
bool is_run_folder(const std::filesystem::path& folder);

/// Paths below `folder`, relative to it, that no run writes, by name; of a folder of others the folder alone.
/// `alive`, the file of the process that holds it, is not among them.
std::vector<std::string> others_in_run(const std::filesystem::path& folder);

/// A folder of a run that is a link there; empty: none is.
std::string linked_folder_of_run(const std::filesystem::path& folder);

/// Removes what a run leaves behind, `state` last, so that a removal that was interrupted shows what it was.
/// What others wrote stays, with the folders that it lies in; that of a checkpoint becomes `step-N.left`. No
/// link is followed. `kept`: files of the run, by their paths in `folder`, that stay. Throws
/// std::filesystem::filesystem_error.
void remove_run(const std::filesystem::path& folder, const std::set<std::string>& kept = {});

/// Throws Error (exit code 2), naming `option`, where `path` is a file of a run, or lies there already in the
/// folder of a checkpoint or of a staged dataset: an output may not take its place. Nothing but a regular
/// file may be there.
void require_not_kept(const std::string& option, const std::filesystem::path& path);

/// Whether names that a run gives its files are taken there.
bool has_names_of_run(const std::filesystem::path& folder);

}  // namespace dtrain::app
