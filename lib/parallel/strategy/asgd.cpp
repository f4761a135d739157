#include "parallel/strategy/asgd.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

bool runs_ddp(const StrategyOptions& options) { return options.staleness == 0; }

Answer can_serve(const Setting& setting) {
  if (setting.half == at::kHalf) return {"in fp16 each copy would scale its loss differently"};
  if (setting.mesh.pipe > 1 || setting.mesh.tensor > 1)
    return {"a copy that fetches parameters has to be one rank: use a mesh of data alone"};
  if (setting.on_device) return {"servers update in the CPU's memory"};
  return {};
}

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
  return {.runs = can_serve(setting),
          .replays_graphs = {"parameters come with each micro-batch"},
          .updates_by_rows = {"gradients go to servers as a whole"},
          .rolls_back = {"servers apply updates as they come"},
          .copies_parts = {"servers apply updates as they come"},
          .same_bits = {"updates are applied in the order in which they come; --staleness 0 has ddp's bits"},
          .deals_work = true,
          .spares = {"the ranks that are left deal the work anew from the newest checkpoint"}};
}

Asgd::Asgd(const StrategyParts& parts)
    : parts_(parts),
      copies_(parts.data.size() - parts.setting.options.servers),
      copy_(parts),
      control_(parts.world),
      versions_(static_cast<std::size_t>(parts.setting.options.servers), 0) {
  if (!serves()) return;
  const auto mine = part_of_server(parts_.data.rank() - copies_);
  server_ = std::make_unique<ParameterServer>(ParameterServer::Parts{
      .data = parts_.data,
      .queue = parts_.queue,
      .sink = parts_.sink,
      .copies = copies_,
      .part = mine,
      .values = copy_.values(),
      .clock = parts_.clock,
      .update =
          [this, mine](const at::Tensor& gradient, double scale, double rate, std::int64_t number) {
            const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
            copy_.optimizer().step(copy_.values(), gradient, scale, rate, number, {mine});
          },
      .divides_rate = parts_.setting.options.staleness_rate == "divided"});
}

Range Asgd::part_of_server(int index) const {
  return part_of(FlatParameters::size_of(parts_.model), index, servers());
}

/// Each micro-batch is one update: the number is the same whichever copy computed them.
std::int64_t Asgd::updates_before(std::int64_t step) const {
  return (step - 1) * parts_.setting.micro_batches;
}

std::optional<WorkUnit> Asgd::take_work(const WorkRange& steps) {
  steps_ = steps;
  if (serves()) return std::nullopt;
  send({.kind = ServerMessage::Kind::work}, dealer(), false);
  const auto answer = receive(dealer(), true);
  const bool has_work = answer.unit.step > 0;
  for (int server = 1; server < servers(); ++server) {
    using Kind = ServerMessage::Kind;
    send({.kind = has_work ? Kind::pull : Kind::finish, .unit = answer.unit}, dealer() + server, false);
  }
  if (!has_work) return std::nullopt;
  for (int server = 1; server < servers(); ++server) receive(dealer() + server, true);
  copy_.replaced();
  unit_ = answer.unit;
  return unit_;
}

StepOutcome Asgd::step(const StepPlan& plan, SampleSource& samples) {
  StepOutcome outcome;
  if (plan.pauses) {
    end(outcome);
  } else {
    step_alone(plan, samples, outcome);
  }
  return outcome;
}

void Asgd::step_alone(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome) {
  outcome.agreed = false;
  const auto pass = copy_.compute(plan, samples, LocalCopy::Sums::of_copy);
  outcome.own = pass.own;
  own_.add_samples(pass.own);
  own_.non_finite += pass.own.non_finite;
  own_weight_ += pass.weight;
  if (pass.weight > 0) outcome.gradient_norm = std::sqrt(pass.squares) / pass.weight;
  const bool finite = pass.non_finite == 0 && std::isfinite(pass.loss);
  if (!finite) spoiled_.keep(plan.number, copy_.gradients().clone());
  ServerMessage message{.kind = ServerMessage::Kind::skip, .unit = *unit_};
  if (finite && pass.weight > 0) {
    message.kind = ServerMessage::Kind::push;
    message.scale = optim::clip_coefficient(outcome.gradient_norm, parts_.grad_clip) / pass.weight;
    message.rate = plan.learning_rate * plan.share;
    copy_.apply_statistics();
  }
  push(message);
  unit_.reset();
}

/// The server that deals hears of a gradient when all others have applied their parts.
void Asgd::push(const ServerMessage& message) {
  const bool has_gradient = message.kind == ServerMessage::Kind::push;
  for (int server = servers() - 1; server > 0; --server) send(message, dealer() + server, has_gradient);
  for (int server = servers() - 1; server > 0; --server) receive(dealer() + server, false);
  send(message, dealer(), has_gradient);
}

void Asgd::send(const ServerMessage& message, int server, bool with_gradient) {
  auto stamped = message;
  stamped.version = versions_[static_cast<std::size_t>(server - dealer())];
  if (parts_.clock != nullptr) stamped.sent_s = parts_.clock->now_s();
  auto fields = stamped.fields();
  const auto header = parts_.data.send(comm::Buffer::of(std::span<double>(fields)), server);
  if (with_gradient) {
    const auto part = part_of_server(server - dealer());
    parts_.data.send(buffer_of(copy_.gradients().narrow(0, part.begin, part.size())), server).wait();
  }
  header.wait();
}

ServerAnswer Asgd::receive(int server, bool with_parameters) {
  const at::NoGradGuard no_grad;
  ServerAnswer::Fields fields{};
  parts_.data.receive(comm::Buffer::of(std::span<double>(fields)), server).wait();
  const auto answer = ServerAnswer::from(fields);
  double bytes = sizeof fields;
  if (with_parameters && answer.unit.step > 0) {
    const auto part = part_of_server(server - dealer());
    const auto values = copy_.values().narrow(0, part.begin, part.size());
    parts_.data.receive(buffer_of(values), server).wait();
    versions_[static_cast<std::size_t>(server - dealer())] = answer.version;
    bytes = static_cast<double>(values.nbytes());
  }
  if (parts_.clock != nullptr) parts_.clock->receive(parts_.data.world_rank_of(server), answer.sent_s, bytes);
  return answer;
}

/// All gradients have been applied, or will be before the servers come here.
void Asgd::end(StepOutcome& outcome) {
  std::vector<std::int64_t> late;
  if (server_ != nullptr) {
    const auto& setting = parts_.setting;
    std::optional<Dealing> dealing;
    if (parts_.data.rank() == dealer())
      dealing.emplace(steps_, static_cast<int>(setting.micro_batches), setting.options.staleness);
    late = server_->serve(dealing ? &*dealing : nullptr, updates_before(steps_.first));
  }
  const auto agreed = control_.agree(own_, parts_.requests ? parts_.requests() : StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  const auto& total = outcome.total;
  if (total.non_finite > 0 || !std::isfinite(total.loss)) spoiled_.report(parts_, copy_, total);
  spread_state();
  copy_.average_buffers(total.weight > 0 ? own_weight_ / total.weight : 1.0 / parts_.data.size());
  const auto most = static_cast<std::size_t>(
      Dealing::most_late(static_cast<int>(parts_.setting.micro_batches), parts_.setting.options.staleness));
  require(late.size() <= most + 1, "an update was later than --staleness allows",
          {.subject = "--strategy asgd", .advice = "report this as a bug"});
  late.resize(most + 1);
  parts_.data.broadcast(comm::Buffer::of(std::span(late)), dealer()).wait();
  outcome.staleness = std::move(late);
  own_ = {};
  own_weight_ = 0;
}

/// Each server's part of parameters and optimizer state, to all ranks.
void Asgd::spread_state() {
  const at::NoGradGuard no_grad;
  for (int server = 0; server < servers(); ++server) {
    const auto part = part_of_server(server);
    const auto spread = [&](const at::Tensor& values) {
      parts_.data.broadcast(buffer_of(values.narrow(0, part.begin, part.size())), dealer() + server).wait();
    };
    spread(copy_.values());
    for (const auto& state : copy_.optimizer().state()) spread(state.value);
  }
  copy_.replaced();
}

void Asgd::compare_copies(std::int64_t number) {
  require_same_copies(parts_.data, parts_.world, parts_.model, copy_.values(), number);
}

}  // namespace dtrain::parallel
