#include "train/recovery/survival.hpp"

#include <fmt/format.h>

#include <exception>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "train/recovery/recovery_options.hpp"

namespace dtrain::train {

namespace {

state::PartCopies::Ranks copying_ranks(Job& job) {
  return {.mesh = job.mesh(),
          .cluster = job.cluster(),
          .world = job.groups().world(),
          .all_gather = [&job](const std::string& text) { return job.world().all_gather(text); }};
}

}  // namespace

Survival::Survival(const Parts& parts) : parts_(parts), behind_(parts.recovery.behind()) {
  if (parts.recovery.may_lose_ranks()) check_recovery(parts.config, parts.replica.can());
  if (parts.recovery.may_lose_ranks() && parts.config.replicate_every() > 0)
    copies_ = std::make_unique<state::PartCopies>(copying_ranks(parts.job), parts.replica.state().tensors());
  rebuilt_s_ = steady_s();
}

void Survival::after_step(std::int64_t step, const Info& info) {
  const auto every = parts_.config.replicate_every();
  if (copies_ && step / every > std::exchange(copied_, step) / every)  // a step may count for several
    copies_->take(parts_.replica.state().tensors(), info());
  if (behind_) record_recovery(step);
}

bool Survival::leave_lost_behind(const Error& error, std::int64_t step, const Info& info,
                                 Recovery::Files files) {
  record(error);
  const auto save = [&](const LostRanks& lost, bool all_hold_state) {
    parts_.recovery.keep(parts_.outputs.topology_without(lost.ranks));
    if (parts_.injection != nullptr) parts_.injection->reach("recovery");
    const auto remains = all_hold_state  ? save_what_is_left(step, info)
                         : all_is_saved_ ? state::Remains{.problem = "the last step's checkpoint is there"}
                                         : state::Remains{.problem = "not all are where the step was left"};
    parts_.outputs.event("saved_after_loss", remains.problem.empty() ? fmt::format("step {}", remains.step)
                                                                     : "nothing: " + remains.problem);
  };
  return parts_.recovery.leave_lost_behind(!all_is_saved_, save, files);
}

/// Of the last step that all have done, or of the newest in copies.
state::Remains Survival::save_what_is_left(std::int64_t step, const Info& info) {
  const auto world = comm::Communicator::duplicate(parts_.mpi.world(), parts_.config.comm.timeout_s);
  const auto done = world.min(step);
  const comm::LongPhase writing(world, parts_.config.files_limit_s());
  const auto& mesh = parts_.job.mesh();
  std::vector<state::HeldPart> held = copies_ ? copies_->held() : std::vector<state::HeldPart>();
  if (parts_.replica.can().rolls_back && done > 0) {
    parts_.replica.strategy().roll_back(done + 1);
    held.push_back({.step = done,
                    .where = mesh.coordinates(parts_.job.rank()),
                    .tensors = parts_.replica.strategy().state().tensors(),
                    .info = step == done ? std::optional(info()) : std::nullopt});
  }
  return state::save_remains(held, mesh.shape(), checkpoints_folder(parts_.config), world, parts_.library);
}

void Survival::record(const Error& error) noexcept {
  try {
    parts_.outputs.event("lost_rank", fmt::format("{}: {}", error.subject(), error.problem()));
    parts_.outputs.flights();
  } catch (const std::exception&) {  // the run is failing already, and says why
  }
}

void Survival::record_recovery(std::int64_t step) {
  const double done_s = steady_s() - behind_->noticed_s;
  parts_.outputs.event(
      "recovered",
      fmt::format("{} lost: {} ranks agreed after {:.3f} s, had rebuilt mesh and model after {:.3f} s, "
                  "step {} was done after {:.3f} s",
                  behind_->in_words(), parts_.job.world().size(), behind_->agreed_s - behind_->noticed_s,
                  rebuilt_s_ - behind_->noticed_s, step, done_s));
  parts_.log.info(fmt::format("recovered  without {} in {:.2f} s: {} ranks, mesh {}, at step {}",
                              behind_->in_words(), done_s, parts_.job.world().size(),
                              parts_.job.mesh().shape().to_string(), step));
  behind_.reset();
  parts_.recovery.recovered();
}

}  // namespace dtrain::train
