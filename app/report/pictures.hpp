#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "h5/library.hpp"

namespace dtrain::app {

/// Where the pictures of runs go, and what draws them.
struct PictureOptions {
  std::string html;      ///< A page with all of them; empty: none.
  std::string plots;     ///< A folder for PNG files, made where it is missing; empty: none.
  std::string python;    ///< A Python with h5py, matplotlib and numpy: a path, or a name to be found in PATH.
  std::string packages;  ///< The folder that holds the package dtrain_plots.

  bool wanted() const { return !html.empty() || !plots.empty(); }
};

/// The Python to use: `named` by the user, else that of jobs/setup.sh where it is there, else `python3`.
std::string python_of(const std::string& named);

/// share/dtrain beside the folder of this program, as it is built and as it is installed.
std::string packages_folder();

/// Draws runs (folders, at least one) in a process of its own and returns how that ended; it prints its own
/// errors. Throws Error: exit code 2 when a place cannot be written or no Python can be started, 2 or 3 when
/// a run cannot be read.
ExitCode draw_pictures(h5::Library& library, const std::vector<std::string>& folders,
                       const PictureOptions& options);

}  // namespace dtrain::app
