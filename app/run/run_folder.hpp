#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "environment.hpp"
#include "record/run_folder.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

/// MODEL-DATASET-JOB in Slurm, the same after a requeue; otherwise MODEL-DATASET-TIME (UTC).
std::string default_name(const train::RunConfig& config, const Environment& environment);

/// Makes a folder below `output` that was not there: `name`, or where that is taken with -2, -3, ... behind.
/// Returns its name. Throws Error (exit code 2).
std::string make_own_folder(const std::filesystem::path& output, const std::string& name);

/// The folder of one run, seen by the one rank that prepares it. `state` in it is the one line that scripts
/// go by: running, completed, preempted or failed.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  /// Whether a run of that name can be resumed: it has checkpoints and is not finished, or `config` asks
  /// for more steps than it has done. Throws Error (exit code 2) for a finished run, one that is still
  /// running, and a folder of something else; exit code 4: folders are in the places of its links.
  bool can_go_on(const train::RunConfig& config) const;

  bool has_checkpoints() const;

  /// The checkpoint or run that the run there was begun from with `--resume`, as the user named it; empty
  /// where there is none.
  std::string begun_from() const;

  /// Whether a run has checkpoints there that was itself begun with `--resume` and this `path`: the same
  /// command has been given again, or for a finished run one that trains it further.
  bool was_begun_from(const std::string& path) const;

  /// What prepare() replaces in the folder of a run that goes on.
  struct Earlier {
    std::optional<record::Status> state;
    std::string config_toml;  ///< Empty: there is none that can be read.
  };
  Earlier earlier() const;
  /// After a command that was refused before its first step: the run stands where it stood, and scripts that
  /// read `state` must see that. Does not throw.
  void put_back(const Earlier& earlier) const noexcept;

  /// Whether a run has left something there: a state or results.
  bool is_of_run() const;

  /// Before a run is replaced: makes the folder where it is not there, and looks whether what is there is a
  /// run's. Throws as prepare().
  void check_replaceable() const;

  /// What prepare() does with what lies there.
  enum class Contents {
    none,      ///< There must be nothing.
    unsaved,   ///< There may be an unfinished run without checkpoints: it is begun anew, with its ledger.
    replaced,  ///< What a run leaves behind is removed first, and nothing else.
    kept,      ///< The run goes on.
  };
  /// Makes the folder, with config.toml and the state `running`. Returns what of others it leaves where a run
  /// is replaced. Throws Error (exit code 2): a finished or unfinished run of that name, a folder to be
  /// replaced that is not a run's, a folder that cannot be written.
  std::vector<std::string> prepare(Contents contents, const std::string& config_toml) const;

  /// A file that only this folder has, for other ranks to look for; has_token() gives a shared file system a
  /// few seconds to show it. The first throws Error (exit code 2), the others nothing.
  void leave_token(const std::string& token) const;
  bool has_token(const std::string& token) const noexcept;
  void remove_token() const noexcept;

  /// After a run that failed: marks it so, or, when it failed before it had results and no attempt before it
  /// has left a ledger, removes what prepare() wrote, so that the name is free for the next attempt. Does not
  /// throw.
  void mark_failed() const noexcept;

 private:
  std::filesystem::path path_;
};

}  // namespace dtrain::app
