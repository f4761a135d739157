#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace dtrain::record {

inline constexpr const char* kHolderFile = "alive";

/// Keeps a run's folder for one process, so that no other one works in it meanwhile. The file `alive` in it
/// names the process, as `HOST PID START`, and its time is renewed each second: where it is older, or there
/// is none, a `state` that says `running` is that of a run that has died.
class RunHolder {
 public:
  enum class Claim {
    if_free,
    taken_over  ///< The one before is known to be gone.
  };
  /// Makes the folder where there is none. Throws Error (exit code 2) when another process holds it, or when
  /// it cannot be written.
  RunHolder(std::string folder, Claim how);
  ~RunHolder();  ///< Lets it go, and removes it where nothing is in it.
  RunHolder(const RunHolder&) = delete;
  RunHolder& operator=(const RunHolder&) = delete;

 private:
  void claim(Claim how) const;
  void renew();

  std::string folder_;
  std::string text_;  // of the file
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

/// `host HOST, process PID` of another process that holds the folder; empty where none does. One of another
/// host is taken for alive until its file has been silent for a minute, or for ten seconds where `state` says
/// that the run has ended.
std::string other_holder(const std::string& folder);

}  // namespace dtrain::record
