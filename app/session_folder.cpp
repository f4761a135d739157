#include "session_folder.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "data/placement/own_folder.hpp"

namespace dtrain::app {

void keep_session_folder_from_others(const Environment& environment) {
  if (environment.launcher_rank) return;  // which has given the ranks a folder
  struct stat facts = {};
  if (::stat(environment.temporary_folder.c_str(), &facts) != 0 || (facts.st_mode & S_IWOTH) == 0) return;
  try {
    const auto own = data::OwnFolder::find_or_make(environment.temporary_folder);
    ::setenv("TMPDIR", own.path().c_str(), 1);
  } catch (const std::filesystem::filesystem_error&) {  // full: Open MPI says what it lacks
  }
}

}  // namespace dtrain::app
