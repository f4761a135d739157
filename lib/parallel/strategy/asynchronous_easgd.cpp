#include "parallel/strategy/asynchronous_easgd.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/strategy/elasticity.hpp"
#include "parallel/strategy/sync_period.hpp"

namespace dtrain::parallel {
namespace {

int copies_in(const Setting& setting) {
  return ServerRoles(setting.mesh.data, setting.options.servers).copies();
}

bool has_no_moments(optim::Optimizer& optimizer) {
  return std::ranges::all_of(optimizer.state(), [](const auto& state) {
    return state.value.count_nonzero().template item<std::int64_t>() == 0;
  });
}

Answer can_exchange(const Setting& setting) {
  if (auto served = can_be_served(setting); !served) return served;
  if (SyncPeriod(setting.options.sync_period).adapts())
    return {"a period that adapts needs rounds, after which the loss of all copies is known"};
  return can_pull(setting.options.elasticity, copies_in(setting));
}

}  // namespace

Abilities AsynchronousEasgd::can(const Setting& setting) {
  return {.runs = can_exchange(setting),
          .replays_graphs = {"a step of a copy is another than its exchange"},
          .updates_by_rows = {"the copies hold different tables"},
          .rolls_back = {"the copies differ"},
          .copies_parts = {"the copies differ"},
          .same_bits = {"copies meet the centre in the order in which they come"},
          .deals_work = true,
          .spares = {"the copies that are left go on from the newest checkpoint"}};
}

AsynchronousEasgd::AsynchronousEasgd(const StrategyParts& parts)
    : ServedCopies(parts, {.update =
                               [this](const at::Tensor& kept, const at::Tensor& given, const Range& part,
                                      double /*scale*/, double /*rate*/, std::int64_t /*number*/) {
                                 const auto centre = kept.narrow(0, part.begin, part.size());
                                 const auto copy = given.narrow(0, part.begin, part.size());
                                 centre.add_(copy - centre, elasticity_);
                               }}),
      period_(SyncPeriod(parts.setting.options.sync_period).steps()),
      elasticity_(elasticity_of(parts.setting.options.elasticity, roles().copies())),
      centre_(at::empty_like(copy().values())),
      own_(at::empty_like(copy().values())) {
  adopt_weights();
}

void AsynchronousEasgd::adopt_weights() {
  const at::NoGradGuard no_grad;
  copy().adopt_weights();
  serving().keep(copy().values());
  centre_.copy_(copy().values());
  own_.copy_(copy().values());
  shows_centre_ = true;
}

std::optional<WorkUnit> AsynchronousEasgd::draw() {
  const at::NoGradGuard no_grad;
  if (std::exchange(shows_centre_, false)) {
    copy().values().copy_(own_);
    copy().replaced();
  }
  auto unit = client().draw();
  if (unit) return unit;
  if (steps_ > 0) exchange();
  client().finish();
  return std::nullopt;
}

void AsynchronousEasgd::use(const StepPlan& plan, const LocalCopy::Pass& pass, double norm, bool usable) {
  if (!usable) return;
  const double scale = optim::clip_coefficient(norm, parts().grad_clip) / pass.weight;
  // Moments count the updates of the copy: one for each of its micro-batches, of which a step has several.
  if (updates_ == 0 && !has_no_moments(copy().optimizer()))  // after a resumption
    updates_ = (scaler().updates(plan.number) - 1) * parts().setting.micro_batches / roles().copies();
  copy().update(scale, plan.learning_rate * plan.share * roles().copies(), ++updates_);
  if (++steps_ >= period_) exchange();
}

void AsynchronousEasgd::exchange() {
  const at::NoGradGuard no_grad;
  auto& values = copy().values();
  client().exchange(values, centre_);
  values.add_(centre_ - values, elasticity_);
  copy().replaced();
  steps_ = 0;
}

void AsynchronousEasgd::agree(std::vector<std::int64_t> /*late*/, StepOutcome& /*outcome*/) {
  const at::NoGradGuard no_grad;
  // A rank that only serves keeps the centre in its model.
  if (roles().computes(parts().data.rank())) own_.copy_(copy().values());
  serving().spread(copy().values());
  copy().replaced();
  centre_.copy_(copy().values());
  shows_centre_ = true;
}

StateView AsynchronousEasgd::state() {
  // A rank that only serves has no copy: it names one, and no rank takes the values of it.
  const int copies = roles().copies();
  const StateTensor::Owner mine{
      .copy = StateTensor::Owner::Copy{.index = std::min(parts().data.rank(), copies - 1), .count = copies}};
  std::vector<StateView::Flat> flat;
  for (const auto& moments : copy().optimizer().state()) flat.push_back({moments.name, moments.value, mine});
  flat.push_back({"copy", own_, mine});
  return {copy().parameters(), parts().model, std::move(flat)};
}

void AsynchronousEasgd::compare_copies(std::int64_t number) {
  require_same_copies(parts().data, parts().world, parts().model, centre_, number);
}

}  // namespace dtrain::parallel
