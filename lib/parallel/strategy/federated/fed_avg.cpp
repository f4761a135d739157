#include "parallel/strategy/federated/fed_avg.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/gradients/squares.hpp"
#include "parallel/strategy/federated/control_variates.hpp"
#include "parallel/strategy/federated/own_models.hpp"
#include "parallel/strategy/federated/plain_sum.hpp"
#include "parallel/strategy/federated/secure/secure_privacy.hpp"
#include "parallel/strategy/federated/secure/secure_rounds.hpp"

namespace dtrain::parallel {
namespace {

bool normalises(const FederatedOptions& options) { return options.rule == "fednova"; }
bool has_controls(const FederatedOptions& options) { return options.rule == "scaffold"; }
bool trains_alone(const FederatedOptions& options) { return options.rule == "local"; }

Answer can_simulate(const Setting& setting) {
  const auto& options = setting.options.federated;
  if (setting.mesh.pipe > 1 || setting.mesh.tensor > 1)
    return {"a client is simulated by one rank, and the mesh cuts the model"};
  if (setting.half == at::kHalf) return {"in fp16 each client would scale its loss differently"};
  if (setting.on_device) return {"clients are simulated on CPUs"};
  if (normalises(options) && setting.optimizer.adaptive())
    return {"FedNova knows what local steps of sgd come to, not those of adam"};
  if (normalises(options) && options.proximal_mu > 0)
    return {"FedNova knows what local steps of sgd come to, not those with --proximal-mu"};
  if (has_controls(options) && (setting.optimizer.name != "sgd" || setting.optimizer.momentum > 0))
    return {"the control variates of SCAFFOLD are gradients of plain sgd: --optimizer sgd --momentum 0"};
  if (const auto answer = SecureRounds::can(setting); !answer) return answer;
  return FederatedPrivacy::can(setting);
}

ServerUpdate::Config server_config(const FederatedOptions& options) {
  const bool divides = options.server_optimizer == "adam" || options.server_optimizer == "yogi";
  return {.optimizer = options.server_optimizer,
          .rate = options.server_rate > 0 ? options.server_rate
                  : divides               ? FederatedOptions::kAdaptiveServerRate
                                          : 1.0,
          .beta1 = options.server_momentum};
}

std::vector<models::Buffer*> changing_buffers(models::Model& model) {
  std::vector<models::Buffer*> all;
  for (auto* buffer : model.buffers()) {
    if (buffer->update != models::Buffer::Update::constant) all.push_back(buffer);
  }
  return all;
}

std::int64_t elements_of(const std::vector<models::Buffer*>& buffers) {
  std::int64_t sum = 0;
  for (const auto* buffer : buffers) sum += buffer->value.numel();
  return sum;
}

void copy_into(at::Tensor& to, const at::Tensor& from) {
  if (!to.defined()) to = at::empty_like(from);
  to.copy_(from);
}

}  // namespace

StrategyEntry fedavg() {
  return {
      .name = "fedavg",
      .rule = "federated: sampled clients make local steps, and the global model takes their weighted mean",
      .options = {"partition",         "clients",
                  "clients-per-round", "rounds",
                  "local-epochs",      "local-batch",
                  "federated-rule",    "proximal-mu",
                  "server-optimizer",  "server-rate",
                  "server-momentum",   "drop-rate",
                  "round-deadline",    "dp-clip",
                  "dp-noise",          "target-epsilon",
                  "dp-delta",          "dp-accountant",
                  "noise-source",      "dp-unit",
                  "dp-adaptive-clip",  "secure-aggregation",
                  "secure-threshold",  "secure-ring",
                  "secure-bits",       "secure-clip",
                  "secure-noise"},
      // The global weights, where a lost round began, an update, and a sum of twice the width.
      .blocks =
          [](const StrategyOptions& options) {
            // A secure sum: values, ring elements and their message.
            return 5 + (options.federated.secure.on() ? 3 : 0) + (has_controls(options.federated) ? 5 : 0) +
                   (trains_alone(options.federated) ? 1 : 0) + (options.dp_clip > 0 ? 1 : 0) +
                   (options.federated.server_optimizer == "none"       ? 0
                    : options.federated.server_optimizer == "momentum" ? 1
                                                                       : 2);
          },
      .can = FedAvg::can,
      .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
        return std::make_unique<FedAvg>(parts);
      }};
}

Abilities FedAvg::can(const Setting& setting) {
  const bool has_deadline = setting.options.federated.round_deadline > 0;
  const bool draws_secretly = setting.options.dp_clip > 0 && setting.options.noise_source == "secure";
  return {.runs = can_simulate(setting),
          .replays_graphs = {"local steps of a client follow one another within a round"},
          .updates_by_rows = {"clients hold different tables within a round"},
          .rolls_back = {},
          .copies_parts = {"each rank has all of the state already"},
          .same_bits =
              {hides_clients(setting)
                   ? "noise of secure sums, as of --secure-noise, is drawn from the system's randomness"
               : draws_secretly
                   ? "with --dp-clip noise and draws are of the system's randomness: only --noise-source "
                     "seeded, which protects nothing, repeats them"
               : has_deadline ? "which clients miss --round-deadline is up to the machine"
                              : ""},
          .adapts_batch = {"its clients make local steps of --local-batch"},
          .owns_by_speed = {"clients are dealt by their samples"}};
}

FedAvg::FedAvg(const StrategyParts& parts)
    : parts_(parts),
      options_(parts.setting.options.federated),
      copy_(parts),
      control_(parts.world),
      buffers_(changing_buffers(parts.model)),
      server_(server_config(options_), copy_.values()),
      privacy_(FederatedPrivacy::make(parts_, copy_)),
      sum_(make_sum()),
      update_(at::zeros_like(copy_.values())),
      keeping_(make_keeping()) {}

std::unique_ptr<ClientKeeping> FedAvg::make_keeping() {
  if (trains_alone(options_)) return std::make_unique<OwnModels>(parts_, copy_, buffers_);
  if (has_controls(options_)) return std::make_unique<ControlVariates>(parts_, copy_.values());
  return std::make_unique<ClientKeeping>();
}

std::unique_ptr<RoundSum> FedAvg::make_sum() {
  const auto values = copy_.parameters().size();
  if (options_.secure.on()) return std::make_unique<SecureRounds>(parts_, values, privacy_.get());
  const PlainSum::Sizes sizes{
      .parameters = values, .buffers = elements_of(buffers_), .control = has_controls(options_) ? values : 0};
  return std::make_unique<PlainSum>(parts_, sizes, privacy_.get());
}

/// What the server keeps from round to round beside the global model.
std::vector<ServerUpdate::Moments> FedAvg::server_state() const {
  auto all = server_.state();
  for (const auto& moments : keeping_->server_state()) all.push_back(moments);
  return all;
}

void FedAvg::keep_global(std::int64_t number) {
  const at::NoGradGuard no_grad;
  global_.number = number;
  copy_into(global_.values, copy_.values());
  global_.buffers.resize(buffers_.size());
  for (std::size_t i = 0; i < buffers_.size(); ++i) copy_into(global_.buffers[i], buffers_[i]->value);
  if (!parts_.setting.recovers) return;
  global_.released.clear();
  if (privacy_ != nullptr) {
    for (const auto& tensor : privacy_->state()) global_.released.push_back(tensor.value.clone());
  }
  const auto state = server_state();
  global_.moments.resize(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) copy_into(global_.moments[i], state[i].values);
}

void FedAvg::restore(const Kept& kept) {
  const at::NoGradGuard no_grad;
  copy_.values().copy_(kept.values);
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i]->value.copy_(kept.buffers[i]);
  copy_.replaced();
}

StepOutcome FedAvg::step(const StepPlan& plan, SampleSource& samples) {
  require(plan.round != nullptr, fmt::format("step {} is planned without clients", plan.number),
          {.subject = "--strategy fedavg", .advice = "report this as a bug"});
  keeping_->begin_round(plan.number);
  keep_global(plan.number);
  StepOutcome outcome;
  sum_->begin(plan);
  train_and_hand_in(plan, samples, outcome.own);
  const auto sum = sum_->finish(update_);
  const auto agreed = control_.agree(outcome.own, parts_.requests ? parts_.requests() : StepRequests());
  restore(global_);
  outcome.total = agreed.totals;
  outcome.total.add_samples(sum.totals);
  outcome.requests = agreed.requests;
  require(outcome.total.non_finite == 0 && std::isfinite(outcome.total.loss),
          fmt::format("round {}: an update is not finite, or has numbers above {:g}", plan.number,
                      UpdateSum::kLargest),
          {.subject = "--strategy fedavg", .advice = "use a smaller --learning-rate, or --grad-clip"});
  outcome.round = update_global(plan, sum);
  outcome.gradient_norm = outcome.round->update_norm;
  return outcome;
}

/// This rank's clients, one after another, until the round's deadline.
void FedAvg::train_and_hand_in(const StepPlan& plan, SampleSource& samples, StepTotals& own) {
  const double end_s = options_.round_deadline > 0 ? steady_s() + options_.round_deadline
                                                   : std::numeric_limits<double>::infinity();
  for (const auto& work : plan.round->clients) {
    if (sum_->has_failed()) return;
    StepTotals totals;
    const bool is_done = train_client(plan, work, samples, totals, end_s);
    own.non_finite += totals.non_finite;
    if (!is_done) return;
    hand_in(plan, work, totals, own);
  }
}

/// Whether the client came to the end of its local steps before the deadline, with the model left where it
/// came to.
bool FedAvg::train_client(const StepPlan& plan, const ClientWork& work, SampleSource& samples,
                          StepTotals& totals, double end_s) {
  restore(global_);
  keeping_->begin_client(work.client, plan.number);
  copy_.reset_optimizer();
  for (std::size_t k = 0; k < work.steps; ++k) {
    if (steady_s() > end_s) return false;
    local_step(plan, work, k, samples, totals);
  }
  return steady_s() <= end_s;
}

/// The one place where a client computes: the `k`th of its steps in this round, from 0.
void FedAvg::local_step(const StepPlan& plan, const ClientWork& work, std::size_t k, SampleSource& samples,
                        StepTotals& totals) {
  StepPlan local{.number = plan.number, .learning_rate = plan.learning_rate};
  local.micro_batches.push_back(plan.micro_batches.at(work.first + k));
  sum_->show_life();
  const auto private_pass =
      privacy_ != nullptr ? privacy_->compute(local, work.client, samples) : std::nullopt;
  const auto pass = private_pass ? *private_pass : copy_.compute(local, samples, LocalCopy::Sums::of_copy);
  totals.add_samples(pass.own);
  totals.non_finite += private_pass ? pass.own.non_finite : 0;
  if (pass.weight <= 0) return;
  const double norm = correct_gradient(pass) / pass.weight;
  copy_.update(optim::clip_coefficient(norm, parts_.grad_clip) / pass.weight, plan.learning_rate,
               static_cast<std::int64_t>(k) + 1);
}

/// Adds what the rule adds to the gradient, a sum over the pass; returns its norm.
double FedAvg::correct_gradient(const LocalCopy::Pass& pass) {
  if (options_.proximal_mu <= 0 && !keeping_->corrects()) return std::sqrt(pass.squares);
  const at::NoGradGuard no_grad;
  at::Tensor gradient = copy_.gradients();
  if (options_.proximal_mu > 0) {
    at::sub_out(update_, copy_.values(), global_.values);
    gradient.add_(update_, options_.proximal_mu * pass.weight);
  }
  keeping_->correct(gradient, pass.weight);
  return parts_.grad_clip > 0 ? std::sqrt(squares_of(gradient).sum) : 0.0;
}

/// How often the gradients of a client's local steps come to act in all.
double FedAvg::normaliser(std::size_t steps) const {
  const auto count = static_cast<double>(steps);
  const double momentum = parts_.setting.optimizer.momentum;
  if (!normalises(options_)) return 1;
  const double acts = (count - momentum * (1 - std::pow(momentum, count)) / (1 - momentum)) / (1 - momentum);
  return parts_.setting.optimizer.nesterov ? count + momentum * acts : acts;
}

/// The one place where a client's update leaves it: what the model has changed since the round began.
void FedAvg::hand_in(const StepPlan& plan, const ClientWork& work, const StepTotals& totals,
                     StepTotals& own) {
  const at::NoGradGuard no_grad;
  at::sub_out(update_, copy_.values(), global_.values);
  std::vector<at::Tensor> changes = {at::zeros({0}, at::kDouble)};
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    changes.push_back((buffers_[i]->value.to(at::kDouble) - global_.buffers[i].to(at::kDouble)).flatten());
  }
  const ClientUpdate update{
      .work = work,
      .totals = totals,
      .parameters = update_,
      .buffers = at::cat(changes),
      .control = keeping_->change(update_, static_cast<double>(work.steps) * plan.learning_rate),
      .local_work = normaliser(work.steps)};
  if (sum_->hand_in(update, own)) {
    keeping_->end_client(work.client, plan.number);
  } else {
    own.non_finite += 1;
  }
}

/// The model has the values where the round began, and update_ the mean.
RoundOutcome FedAvg::update_global(const StepPlan& plan, const RoundSum::Result& sum) {
  const at::NoGradGuard no_grad;
  RoundOutcome outcome{.handed_in = sum.clients,
                       .sampled = plan.round->sampled + plan.round->dropped,
                       .samples = sum.samples,
                       .problem = sum.problem,
                       .news = sum.news};
  if (parts_.setting.recovers) std::swap(before_, global_);
  applied_ = plan.number;
  if (privacy_ != nullptr) privacy_->commit(plan, sum.is_update);
  if (!sum.is_update) return outcome;
  outcome.update_norm = std::sqrt(squares_of(update_).sum);
  server_.apply(copy_.values(), update_);
  auto changes = at::zeros({elements_of(buffers_)}, at::kDouble);
  sum_->take_buffers(changes);
  std::int64_t first = 0;
  for (auto* buffer : buffers_) {
    const auto change = changes.narrow(0, first, buffer->value.numel());
    first += change.numel();
    const auto now = buffer->value.to(at::kDouble) + change.reshape(buffer->value.sizes());
    buffer->value.copy_(buffer->value.is_floating_point() ? now : now.round());
  }
  keeping_->update_server(*sum_);
  copy_.replaced();
  return outcome;
}

StateView FedAvg::state() {
  std::vector<StateView::Flat> flat;
  for (const auto& moments : server_state()) flat.push_back({moments.name, moments.values});
  return {copy_.parameters(), parts_.model, std::move(flat),
          privacy_ != nullptr ? privacy_->state() : std::vector<StateTensor>()};
}

void FedAvg::adopt_optimizer() {
  if (privacy_ != nullptr) privacy_->adopt();
  parts_.data.barrier().wait();
}

void FedAvg::roll_back(std::int64_t number) {
  const bool is_applied = applied_ == number && before_.number == number;
  const auto& kept = is_applied ? before_ : global_;
  if (kept.number != number || applied_ > number) return;
  restore(kept);
  const at::NoGradGuard no_grad;
  auto state = server_state();
  for (std::size_t i = 0; i < kept.moments.size(); ++i) state[i].values.copy_(kept.moments[i]);
  if (privacy_ != nullptr) {
    auto released = privacy_->state();
    for (std::size_t i = 0; i < kept.released.size(); ++i) released[i].value.copy_(kept.released[i]);
    privacy_->adopt();
  }
  applied_ = number - 1;
}

void FedAvg::compare_copies(std::int64_t number) {
  require_same_copies(parts_.data, parts_.world, parts_.model, copy_.values(), number);
}

}  // namespace dtrain::parallel
