#include "parallel/strategy/asgd.hpp"

#include <memory>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

bool runs_ddp(const StrategyOptions& options) { return options.staleness == 0; }

}  // namespace

StrategyEntry asgd() {
  return {.name = "asgd",
          .rule = "each copy fetches parameters from servers and pushes gradients, waiting for no other copy",
          .options = {"servers", "staleness", "staleness-rate"},
          .blocks = [](const StrategyOptions& options) { return runs_ddp(options) ? 0 : 1; },
          .can = Asgd::can,
          .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
            if (runs_ddp(parts.setting.options)) return std::make_unique<Synchronous>(parts);
            return std::make_unique<Asgd>(parts);
          }};
}

Abilities Asgd::can(const Setting& setting) {
  if (runs_ddp(setting.options)) return Synchronous::can(setting);
  return {.runs = can_be_served(setting),
          .replays_graphs = {"parameters come with each micro-batch"},
          .updates_by_rows = {"gradients go to servers as a whole"},
          .rolls_back = {"servers apply updates as they come"},
          .copies_parts = {"servers apply updates as they come"},
          .same_bits = {"updates are applied in the order in which they come; --staleness 0 has ddp's bits"},
          .deals_work = true,
          .spares = {"the ranks that are left deal the work anew from the newest checkpoint"}};
}

// Only servers use the optimizer: each the part of its state that belongs to its parameters.
Asgd::Asgd(const StrategyParts& parts)
    : ServedCopies(parts, {.update =
                               [this](const at::Tensor& kept, const at::Tensor& gradient, const Range& part,
                                      double scale, double rate, std::int64_t number) {
                                 copy().optimizer().step(kept, gradient, scale, rate, number, {part});
                               },
                           .divides_rate = parts.setting.options.staleness_rate == "divided"}) {
  serving().keep(copy().values());
}

void Asgd::adopt_weights() {
  copy().adopt_weights();
  serving().keep(copy().values());
}

std::optional<WorkUnit> Asgd::draw() {
  const auto unit = client().take_work(copy().values());
  if (unit) copy().replaced();
  return unit;
}

void Asgd::use(const StepPlan& plan, const LocalCopy::Pass& pass, double norm, bool usable) {
  ServerMessage message{.kind = ServerMessage::Kind::skip, .unit = unit()};
  if (usable) {
    message.kind = ServerMessage::Kind::push;
    message.scale = optim::clip_coefficient(norm, parts().grad_clip) / pass.weight;
    message.rate = plan.learning_rate * plan.share;
    copy().apply_statistics();
  }
  client().push(message, copy().gradients());
}

void Asgd::agree(std::vector<std::int64_t> late, StepOutcome& outcome) {
  std::vector<at::Tensor> states;
  for (const auto& state : copy().optimizer().state()) states.push_back(state.value);
  serving().spread(copy().values(), states);
  copy().replaced();
  const auto most = static_cast<std::size_t>(
      Dealing::most_late(static_cast<int>(parts().setting.micro_batches), parts().setting.options.staleness));
  require(late.size() <= most + 1, "an update was later than --staleness allows",
          {.subject = "--strategy asgd", .advice = "report this as a bug"});
  late.resize(most + 1);
  parts().data.broadcast(comm::Buffer::of(std::span(late)), roles().dealer()).wait();
  outcome.staleness = std::move(late);
}

void Asgd::compare_copies(std::int64_t number) {
  require_same_copies(parts().data, parts().world, parts().model, copy().values(), number);
}

}  // namespace dtrain::parallel
