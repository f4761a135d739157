#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "doctor/finding.hpp"

namespace dtrain::doctor {

/// What happened when one node used a folder as a run does.
struct FolderFacts {
  std::string part;        ///< What exists of the folder's path: where new folders would be made.
  std::string stuck_in;    ///< The call that did not return; empty: all did.
  std::string failed;      ///< The call that failed, `fsync`; empty: none.
  std::string reason;      ///< Why: the system's words.
  std::string lock_error;  ///< Of fcntl or flock, which dtrain does without; empty: both work.
  double sync_s = 0;       ///< For 1 MiB to be safe.
  std::int64_t free_bytes = 0;
};

/// Makes a folder in what exists of `folder`, and in it writes, syncs, locks and replaces a file. Leaves
/// nothing behind. Takes at most `limit_s`.
FolderFacts try_folder(const std::filesystem::path& folder, double limit_s);

/// Of one node. `option` leads to another folder.
std::vector<Finding> judge_folder(const FolderFacts& facts, const std::string& option);

/// The line for all nodes where each found nothing wrong. `nodes`: by node.
Finding sum_up_folder(const std::string& folder, double longest_sync_s, std::int64_t least_free_bytes,
                      int nodes);

/// A folder for all nodes, made by the first, that is gone with this object.
class SharedTrial {
 public:
  static constexpr int kVersions = 20;

  /// Makes it in what exists of `folder`, with a first version of the file that seen_by() looks for. Without
  /// a path where that is not possible: try_folder() says why.
  explicit SharedTrial(const std::filesystem::path& folder);
  ~SharedTrial();
  SharedTrial(const SharedTrial&) = delete;
  SharedTrial& operator=(const SharedTrial&) = delete;

  const std::filesystem::path& path() const { return path_; }  ///< Absolute; empty: there is none.

  /// Replaces the file by rename, again and again, while the other nodes read it.
  void replace_versions() const;

 private:
  std::filesystem::path path_;
};

/// How a file that the first node replaces looks from here.
struct SeenFacts {
  bool seen = false;     ///< The last version was.
  bool broken = false;   ///< Once seen, it was missing or half-written for a moment.
  double after_s = 0;    ///< From the first look until the last version.
  std::string stuck_in;  ///< As in FolderFacts.
};

/// Reads the file in the first node's `trial` until its last version is there, and leaves a file of this
/// `node`.
SeenFacts look_at_trial(const std::filesystem::path& trial, int node, double limit_s);

/// The nodes whose files the first one does not see, after at most `limit_s`.
std::vector<int> unseen_nodes(const std::filesystem::path& trial, int nodes, double limit_s);

/// On a node other than the first, whose name is `first_host`.
std::vector<Finding> judge_seen(const SeenFacts& facts, const std::string& folder,
                                const std::string& first_host);

/// On the first node, about the `host` of one whose file it does not see.
Finding judge_unseen(const std::string& folder, const std::string& host);

}  // namespace dtrain::doctor
