#include "train/recovery/run_in_parts.hpp"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include "train/recovery/recovery_options.hpp"

namespace dtrain::train {
namespace {

class MpiRanks final : public JobRanks {
 public:
  explicit MpiRanks(comm::MpiEnvironment& mpi) : mpi_(mpi) {}
  bool can_recover() const override { return mpi_.can_recover(); }
  bool is_spare() const override { return mpi_.is_spare(); }
  int rank() const override { return mpi_.world_rank(); }
  int at_work() const override { return mpi_.world_size(); }
  void keep_spares(int count) override { mpi_.keep_spares(count); }
  std::optional<comm::Dismissal> wait_for_call() override { return mpi_.wait_for_call(); }
  void dismiss_spares(int exit_code, std::string_view why) noexcept override {
    mpi_.dismiss_spares(exit_code, why);
  }
  comm::Loss leave_lost_behind(bool holds_state, double limit_s) override {
    return mpi_.leave_lost_behind(holds_state, limit_s);
  }
  void call_spares(int wanted, double limit_s) override { mpi_.call_spares(wanted, limit_s); }

 private:
  comm::MpiEnvironment& mpi_;
};

/// How a part of a run ends on a rank: with the run's exit code, or with what it saw of a loss.
using PartEnd = std::variant<ExitCode, Error>;

/// On a spare.
PartEnd wait_for_place(RunConfig& config, JobRanks& ranks) {
  config.resolve(ranks.at_work());  // as the others do: it may take a place among them
  const auto end = ranks.wait_for_call();
  if (!end) return Error("ranks were lost", {.code = ExitCode::lost_rank});
  const auto code = static_cast<ExitCode>(end->exit_code);
  if (!end->why.empty()) throw Error(end->why, {.code = code});
  return code;
}

PartEnd train_part(RunConfig& config, const RunPart& part, Recovery& recovery) {
  try {
    return part.train(config, recovery);
  } catch (const Error& error) {
    if (error.code() == ExitCode::lost_rank && recovery.is_on()) return error;
    if (!recovery.goes_on()) throw;
    part.mark_failed(config);  // what was begun does not fit those that are left
    if (!recovery.behind() || error.code() != ExitCode::usage) throw;
    throw Error("the ranks that are left cannot go on: " + error.problem(),
                {.subject = error.subject(), .advice = error.advice(), .code = ExitCode::lost_rank});
  }
}

/// What the ranks that are left of a job go on with: the same run on their number.
RunConfig without_lost_ranks(RunConfig config, int ranks) {
  const int of_a_copy = config.mesh_shape.pipe * config.mesh_shape.tensor;
  const bool fits = ranks % of_a_copy == 0;
  config.mesh = fits ? fmt::format("data={},pipe={},tensor={}", ranks / of_a_copy, config.mesh_shape.pipe,
                                   config.mesh_shape.tensor)
                     : fmt::format("data={}", ranks);
  return config;
}

ExitCode run_through_losses(RunConfig config, const RunPart& part, JobRanks& ranks) {
  Recovery recovery(config, ranks);
  while (true) {
    const int at_work = ranks.at_work();
    // A request to stop comes to all processes of the job: a spare that does not listen would die of it.
    if (ranks.is_spare()) recovery.signals(comm::StopSignals::Voice::silent);
    const auto end = ranks.is_spare() ? wait_for_place(config, ranks) : train_part(config, part, recovery);
    if (const auto* code = std::get_if<ExitCode>(&end)) {
      if (!recovery.begin_moved()) return *code;
      continue;
    }
    if (!recovery.regroup(at_work)) {  // all are there, and one of them does not come
      part.mark_failed(config);
      throw Error(std::get<Error>(end));
    }
    config = without_lost_ranks(std::move(config), ranks.at_work());
  }
}

}  // namespace

ExitCode run_in_parts(const RunConfig& config, const RunPart& part, JobRanks& ranks) {
  if (config.spares == 0 || config.dry_run) return run_through_losses(config, part, ranks);
  check_spares(config, ranks.can_recover(), ranks.at_work());
  ranks.keep_spares(config.spares);
  const auto dismiss = [&ranks](ExitCode code, const char* why) {
    if (!ranks.is_spare()) ranks.dismiss_spares(static_cast<int>(code), why);
  };
  try {
    const auto code = run_through_losses(config, part, ranks);
    if (ranks.rank() == 0) dismiss(code, "");
    return code;
  } catch (const Error& error) {
    dismiss(error.code(), error.what());
    throw;
  } catch (const std::exception& error) {
    dismiss(ExitCode::failure, error.what());
    throw;
  }
}

ExitCode run_in_parts(const RunConfig& config, const RunPart& part, comm::MpiEnvironment& mpi) {
  MpiRanks ranks(mpi);
  return run_in_parts(config, part, ranks);
}

}  // namespace dtrain::train
