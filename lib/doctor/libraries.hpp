#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/finding.hpp"

namespace dtrain::doctor {

/// Paths of the shared libraries in this process whose file names begin with `name` (`libmpi.so`), its
/// companions with a further word in their names (`libhdf5_hl`) left out.
std::vector<std::string> loaded_copies(std::string_view name);

/// What a loaded version may be, compared with that of the headers.
enum class Match {
  not_older,   ///< The same major version, and not older: MPI, NCCL, CUDA keep their interface.
  same_minor,  ///< Major and minor: LibTorch keeps it for one release.
  driver,      ///< The same major version or a later one: CUDA's drivers run older programs.
  exact        ///< HDF5 aborts at the first file when any number differs.
};

struct LibraryFacts {
  std::string what;                 ///< `HDF5`
  std::string built;                ///< Version of the headers dtrain was compiled with.
  std::string loaded;               ///< Version that the library gives of itself.
  std::vector<std::string> copies;  ///< Paths in this process; empty where it is linked in.
  Match match = Match::not_older;
};

/// Whether one copy is loaded, and one that fits.
Finding judge_library(const LibraryFacts& facts);

/// As MPI and HDF5 are in this process. MPI must be up.
LibraryFacts mpi_facts();
LibraryFacts hdf5_facts();

/// `provided`: what MPI_Query_thread says.
Finding judge_threads(int provided);

/// Whether a job started like this one can go on without a rank that dies. `has_ulfm`: the MPI library has
/// the functions for that.
Finding judge_recovery(bool has_ulfm, bool switched_on);

}  // namespace dtrain::doctor
