#pragma once

#include <string>
#include <vector>

#include "h5/library.hpp"
#include "record/rows.hpp"

namespace dtrain::record {

/// Writes what `topology --benchmark` found: the tables /topology and /measurements, and attributes `format`,
/// `version`, `mesh`, `start_time_utc` and `mpi`. Written aside and renamed. Throws Error.
struct MeasurementsFile {
  std::string mesh;
  std::string start_time_utc;
  std::string mpi;  ///< The MPI library's own words.
  std::vector<TopologyRow> topology;
  std::vector<MeasurementRow> measurements;

  void write(const std::string& path, h5::Library& library) const;
};

}  // namespace dtrain::record
