#include "parallel/strategy/easgd.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "parallel/agreement.hpp"
#include "parallel/strategy/asynchronous_easgd.hpp"
#include "parallel/strategy/elasticity.hpp"

namespace dtrain::parallel {
namespace {

bool has_rounds(const StrategyOptions& options) { return options.easgd_mode == "rounds"; }

Answer can_pull_in_rounds(const Setting& setting) {
  if (setting.half == at::kHalf) return {"in fp16 each copy would scale its loss differently"};
  return can_pull(setting.options.elasticity, setting.mesh.data);
}

}  // namespace

StrategyEntry easgd() {
  return {.name = "easgd",
          .rule = "each copy makes --sync-period steps of its own, then it and a centre pull at each other",
          .options = {"easgd-mode", "sync-period", "elasticity", "servers"},
          .blocks = [](const StrategyOptions&) { return 3; },
          .can =
              [](const Setting& setting) {
                return has_rounds(setting.options) ? Easgd::can(setting) : AsynchronousEasgd::can(setting);
              },
          .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
            if (!has_rounds(parts.setting.options)) return std::make_unique<AsynchronousEasgd>(parts);
            return std::make_unique<Easgd>(parts);
          }};
}

Abilities Easgd::can(const Setting& setting) {
  return {.runs = can_pull_in_rounds(setting),
          .replays_graphs = {"a step within a round is another than its last one"},
          .updates_by_rows = {"the copies hold different tables"},
          .rolls_back = {"the copies differ"},
          .copies_parts = {"the copies differ"},
          .same_bits = {"the centre depends on the number of copies"},
          .spares = {"the copies that are left go on from the newest checkpoint"}};
}

Easgd::Easgd(const StrategyParts& parts)
    : Rounds(parts, 0),
      elasticity_(elasticity_of(parts.setting.options.elasticity, parts.data.size())),
      centre_(at::empty_like(copy().values())),
      own_(at::empty_like(copy().values())),
      sum_(at::empty_like(copy().values())) {
  adopt_weights();
}

void Easgd::adopt_weights() {
  const at::NoGradGuard no_grad;
  copy().adopt_weights();
  centre_.copy_(copy().values());
  own_.copy_(copy().values());
  shows_centre_ = true;
}

void Easgd::begin_own_step(bool /*first*/) {
  if (!shows_centre_) return;
  const at::NoGradGuard no_grad;
  copy().values().copy_(own_);
  copy().replaced();
  shows_centre_ = false;
}

void Easgd::exchange(double share) {
  const at::NoGradGuard no_grad;
  auto& values = copy().values();
  sum_.copy_(values);
  copy().sum_over_copies(sum_);
  const int copies = parts().data.size();
  values.add_(centre_ - values, elasticity_);  // with the centre from before
  centre_.mul_(1.0 - elasticity_ * copies).add_(sum_, elasticity_);
  copy().replaced();
  copy().average_buffers(share);
}

void Easgd::synchronise() {
  if (shows_centre_) return;
  const at::NoGradGuard no_grad;
  own_.copy_(copy().values());
  copy().values().copy_(centre_);
  copy().replaced();
  shows_centre_ = true;
}

StateView Easgd::state() {
  const StateTensor::Owner mine{
      .copy = StateTensor::Owner::Copy{.index = parts().data.rank(), .count = parts().data.size()}};
  std::vector<StateView::Flat> flat;
  for (const auto& moments : copy().optimizer().state()) flat.push_back({moments.name, moments.value, mine});
  flat.push_back({"copy", own_, mine});
  return {copy().parameters(), parts().model, std::move(flat), period_state()};
}

void Easgd::compare_copies(std::int64_t number) {
  require_same_copies(parts().data, parts().world, parts().model, centre_, number);
}

}  // namespace dtrain::parallel
