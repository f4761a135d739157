#pragma once

#include <vector>

#include "comm/mpi/communicator.hpp"
#include "core/error.hpp"
#include "doctor/finding.hpp"
#include "topology/cluster.hpp"

namespace dtrain::app {

/// The lines of `dtrain doctor`, printed by rank 0 as they are found, so that what comes before a rank that
/// hangs is seen.
class DoctorReport {
 public:
  enum class Speaker { yes, no };

  /// Both are borrowed. `speaker`: no on the second and further of several jobs that were to be one.
  DoctorReport(const comm::Communicator& world, const topology::Cluster& cluster, Speaker speaker);

  /// What all ranks know alike.
  void add(const doctor::Finding& finding) { print({finding, {}}); }
  void add(const std::vector<doctor::Finding>& findings);

  /// What each rank has found by itself: alike on all ranks it is one line, otherwise with the ranks that
  /// found it. Of those `asked` for nodes only the first rank of each gives its findings. Collective. True
  /// when there was anything. Throws Error on rank 0, naming the ranks that do not come.
  bool gather(std::vector<doctor::Finding> mine, doctor::Asked asked = doctor::Asked::ranks);

  /// The last line. The same code on every rank: failure where there was a problem.
  ExitCode sum_up() const;

 private:
  void print(const doctor::SharedFinding& shared);

  const comm::Communicator& world_;
  const topology::Cluster& cluster_;
  bool speaks_;
  int problems_ = 0;
  int notes_ = 0;
};

}  // namespace dtrain::app
