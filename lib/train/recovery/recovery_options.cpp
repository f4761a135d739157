#include "train/recovery/recovery_options.hpp"

#include <fmt/format.h>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "parallel/strategy/registry.hpp"
#include "train/config/strategy_setting.hpp"

namespace dtrain::train {
namespace {

constexpr const char* kHowToRecover = "start with mpirun --with-ft ulfm of Open MPI 5";

Error refusal(const RunConfig& config, const std::string& subject, const parallel::Answer& answer,
              const std::string& advice) {
  return usage_error(fmt::format("--strategy {} cannot: {}", config.strategy, answer.why_not), subject,
                     advice);
}

}  // namespace

void check_recovery(const RunConfig& config, const parallel::Abilities& can) {
  if (config.replicate_every() > 0 && !can.copies_parts) {
    throw refusal(config, "--replicate " + config.replicate, can.copies_parts, "leave --replicate out");
  }
  if (config.on_failure == "recover" && !can.rolls_back && !can.copies_parts)
    throw refusal(config, "--on-failure recover", can.rolls_back, "use --on-failure auto or abort");
}

void check_on_failure(const RunConfig& config, bool mpi_can_recover) {
  if (config.on_failure != "recover" || mpi_can_recover) return;
  throw usage_error("this MPI was not started so that ranks may be lost", "--on-failure recover",
                    fmt::format("{}, or use auto", kHowToRecover));
}

void check_spares(const RunConfig& config, bool mpi_can_recover, int ranks) {
  const std::string subject = fmt::format("--spares {}", config.spares);
  if (config.spares >= ranks) {
    throw usage_error(fmt::format("of {} ranks none would be left to work", ranks), subject,
                      fmt::format("start at least {}", config.spares + 1));
  }
  const auto can = parallel::find_strategy(config.strategy).can(strategy_setting(config));
  if (!can.spares) throw refusal(config, subject, can.spares, "leave --spares out");
  if (mpi_can_recover && config.on_failure != "abort") return;
  throw usage_error("spares would wait in vain: this job ends when a rank is lost", subject,
                    mpi_can_recover ? "leave --on-failure abort out" : kHowToRecover);
}

std::string recovery_in_words(const RunConfig& config, bool mpi_can_recover) {
  if (config.on_failure == "abort") return "recovery   off: --on-failure abort";
  if (!mpi_can_recover) return fmt::format("recovery   off: {} to have it", kHowToRecover);
  if (config.spares == 0) return "recovery   on: when a rank is lost, the others go on without it";
  return fmt::format("recovery   on: {} {} the places of lost ones", counted(config.spares, "spare rank"),
                     config.spares == 1 ? "takes" : "take");
}

}  // namespace dtrain::train
