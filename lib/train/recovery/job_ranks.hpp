#pragma once

#include <optional>
#include <string_view>

#include "comm/mpi/mpi_environment.hpp"

namespace dtrain::train {

/// The ranks of a job as recovery sees them: those that work, and spares that wait to take a place among
/// them. The calls are those of comm::MpiEnvironment; tests have ranks of their own.
class JobRanks {
 public:
  JobRanks() = default;
  virtual ~JobRanks() = default;
  JobRanks(const JobRanks&) = delete;
  JobRanks& operator=(const JobRanks&) = delete;

  virtual bool can_recover() const = 0;  ///< MPI lets the others go on when a rank dies.
  virtual bool is_spare() const = 0;
  virtual int rank() const = 0;     ///< Among those that work.
  virtual int at_work() const = 0;  ///< How many work; also on a spare.

  virtual void keep_spares(int count) = 0;
  virtual std::optional<comm::Dismissal> wait_for_call() = 0;
  virtual void dismiss_spares(int exit_code, std::string_view why) noexcept = 0;
  virtual comm::Loss leave_lost_behind(bool holds_state, double limit_s) = 0;
  virtual void call_spares(int wanted, double limit_s) = 0;
};

}  // namespace dtrain::train
