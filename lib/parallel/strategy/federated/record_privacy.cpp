#include "parallel/strategy/federated/record_privacy.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "parallel/gradients/squares.hpp"
#include "parallel/strategy/private/private_account.hpp"
#include "privacy/draws.hpp"
#include "privacy/renyi.hpp"

namespace dtrain::parallel {
namespace {

const ClientFacts& facts_of(const Setting& setting, std::size_t client) {
  require(client < setting.clients.size(), "is a client that the run does not have",
          {.subject = "--dp-unit record", .advice = "report this as a bug"});
  return setting.clients[client];
}

/// A local step of a client, without its noise.
privacy::SampledGaussian local_mechanism(const ClientFacts& facts) {
  return {.sampling = privacy::Sampling::poisson,
          .noise_multiplier = 0,
          .rate = static_cast<double>(facts.batch) / static_cast<double>(facts.samples),
          .steps = facts.local_steps};
}

/// Of the ledgers of many clients, those among which the largest epsilon is: of two with one mechanism each
/// and the same noise not the one whose rate and steps are both no larger. Ascending places.
std::vector<std::size_t> worst_among(const std::vector<privacy::Mechanisms>& ledgers) {
  std::vector<std::size_t> places;
  std::map<double, std::vector<std::size_t>> simple;  // by noise
  for (std::size_t i = 0; i < ledgers.size(); ++i) {
    if (ledgers[i].size() == 1) {
      simple[ledgers[i][0].noise_multiplier].push_back(i);
    } else if (!ledgers[i].empty()) {
      places.push_back(i);
    }
  }
  for (auto& [noise, alike] : simple) {
    std::ranges::stable_sort(alike, std::ranges::greater(), [&](std::size_t i) {
      return std::pair(ledgers[i][0].rate, ledgers[i][0].steps);
    });
    std::int64_t most = 0;
    for (const auto i : alike) {
      if (ledgers[i][0].steps <= most) continue;
      most = ledgers[i][0].steps;
      places.push_back(i);
    }
  }
  std::ranges::sort(places);
  return places;
}

/// What each client will have released at the end of the run, as far as is known at its beginning.
std::vector<privacy::Mechanisms> planned(const Setting& setting) {
  std::vector<std::int64_t> rounds(setting.clients.size(), 0);
  for (std::int64_t round = 1; round <= setting.total_steps; ++round) {
    for (const int client : setting.clients_of(round)) ++rounds.at(static_cast<std::size_t>(client));
  }
  std::vector<privacy::Mechanisms> ledgers(rounds.size());
  for (std::size_t client = 0; client < rounds.size(); ++client) {
    auto mechanism = local_mechanism(setting.clients[client]);
    mechanism.steps *= rounds[client];
    if (mechanism.steps > 0) ledgers[client] = {mechanism};
  }
  return ledgers;
}

}  // namespace

RecordPrivacy::RecordPrivacy(const StrategyParts& parts, LocalCopy& copy)
    : parts_(parts),
      copy_(copy),
      clipper_(parts, copy.parameters(),
               [this](const StepPlan& one, SampleSource& source, ClippedSum& sum) {
                 const auto pass = copy_.compute(one, source, LocalCopy::Sums::of_copy);
                 sum.take_sample();
                 models::LossSums sums{.loss = at::scalar_tensor(pass.own.loss, at::kDouble),
                                       .correct = {},
                                       .weight = pass.own.weight,
                                       .counted = pass.own.counted};
                 if (pass.own.counted > 0)
                   sums.correct = at::scalar_tensor(std::llround(pass.own.correct), at::kLong);
                 return std::vector<MicroBatchLoss>{{.sums = sums, .samples = 1}};
               }),
      noise_(noise_of(parts)),
      draw_seed_(agreed_draw_seed(parts)),
      noise_multiplier_(same_on_all_ranks(
          parts, parts.setting.options.dp_noise >= 0 ? parts.setting.options.dp_noise : noise_for_all())),
      ledgers_(parts.setting.clients.size()),
      saved_(at::zeros({static_cast<std::int64_t>(ledgers_.size() * privacy::ClientLedgers::kNumbers + 1)},
                       at::kDouble)) {
  require(ledgers_.size() > 0, "does not know how many clients there are",
          {.subject = "--dp-unit record", .advice = "report this as a bug"});
}

/// With which every client keeps to the target to the end of the run.
double RecordPrivacy::noise_for_all() const {
  const auto& options = parts_.setting.options;
  const auto accounting = accounting_of(options);
  const auto ledgers = planned(parts_.setting);
  double noise = 0;
  for (const auto client : worst_among(ledgers)) {
    auto mechanism = ledgers[client][0];
    mechanism.noise_multiplier = noise;
    if (noise > 0 && privacy::epsilon_of({mechanism}, options.dp_delta, accounting) <= options.target_epsilon)
      continue;
    noise =
        std::max(noise, privacy::noise_for(options.target_epsilon, options.dp_delta, mechanism, accounting));
  }
  return noise;
}

privacy::SampledGaussian RecordPrivacy::mechanism_of(std::size_t client) const {
  auto mechanism = local_mechanism(facts_of(parts_.setting, client));
  mechanism.noise_multiplier = noise_multiplier_;
  return mechanism;
}

std::optional<LocalCopy::Pass> RecordPrivacy::compute(const StepPlan& plan, int client,
                                                      SampleSource& samples) {
  const at::NoGradGuard no_grad;
  const auto& batch = plan.micro_batches.front();
  LocalCopy::Pass pass;
  clipper_.begin_step();
  if (batch.samples() > 0) {
    const auto read = samples.take(plan, 0);
    const ScopedSpan span(parts_.sink, Phase::backward, "clip samples");
    const at::AutoGradMode gradients(true);
    pass.own.add(clipper_.add(plan, 0, read, draw_seed_), batch.samples());
    pass.own.micro_batches += 1;
  }
  auto& sum = clipper_.sum().values();
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "noise");
    // Rounds have fewer local steps than a 32-bit number, so that none of two has the same noise.
    parallel::add_noise(*noise_, copy_.parameters(), {0, copy_.parameters().size()},
                        noise_multiplier_ * parts_.setting.options.dp_clip, plan.number << 32 | batch.index,
                        sum);
  }
  at::Tensor gradient = copy_.gradients();
  gradient.copy_(sum);
  pass.own.non_finite = static_cast<double>(clipper_.sum().not_finite());
  pass.squares = squares_of(sum).sum;
  pass.weight = static_cast<double>(facts_of(parts_.setting, static_cast<std::size_t>(client)).batch);
  return pass;
}

/// The ledgers with the local steps of another round.
privacy::ClientLedgers RecordPrivacy::with(const RoundPlan& round) const {
  auto ledgers = ledgers_;
  for (const int number : round.everyone) {
    const auto client = static_cast<std::size_t>(number);
    const auto mechanism = mechanism_of(client);
    ledgers.add_steps(client, mechanism, mechanism.steps);
  }
  return ledgers;
}

void RecordPrivacy::commit(const StepPlan& plan, bool released) {
  if (released) ledgers_ = with(*plan.round);
  round_ = plan.number;
  changed();
}

void RecordPrivacy::changed() {
  worst_.reset();
  const std::span numbers(saved_.mutable_data_ptr<double>(), static_cast<std::size_t>(saved_.numel()));
  ledgers_.write_numbers(numbers.first(numbers.size() - 1));
  numbers.back() = static_cast<double>(round_);
}

std::vector<StateTensor> RecordPrivacy::state() {
  return {{.group = std::string(StateTensor::kOptimizer) + "privacy",
           .name = "ledgers_of_records",
           .value = saved_,
           .slice = nullptr,
           .owner = {.pipe = 0},
           .outlives_reset = true}};
}

void RecordPrivacy::adopt() {
  const std::span numbers(saved_.const_data_ptr<double>(), static_cast<std::size_t>(saved_.numel()));
  ledgers_ = privacy::ClientLedgers::of_numbers(numbers.first(numbers.size() - 1));
  round_ = std::llround(numbers.back());
  changed();
}

std::int64_t RecordPrivacy::take_ledger(const std::string& lines, const std::string& file) {
  const auto before = ledgers_.steps();
  ledgers_.take_larger(privacy::ClientLedgers::of_lines(lines, file, ledgers_.size()));
  changed();
  return ledgers_.steps() - before;
}

std::optional<std::vector<std::int64_t>> RecordPrivacy::drawn_records(std::int64_t round, std::uint32_t index,
                                                                      int client) const {
  const auto& facts = facts_of(parts_.setting, static_cast<std::size_t>(client));
  return privacy::poisson_draw(facts.samples, local_mechanism(facts).rate, draw_seed_, round << 32 | index);
}

double RecordPrivacy::epsilon_of(const privacy::Mechanisms& mechanisms) const {
  return privacy::epsilon_of(mechanisms, parts_.setting.options.dp_delta,
                             accounting_of(parts_.setting.options));
}

const RecordPrivacy::Worst& RecordPrivacy::worst() const {
  if (worst_) return *worst_;
  std::vector<privacy::Mechanisms> all;
  for (std::size_t client = 0; client < ledgers_.size(); ++client)
    all.push_back(ledgers_.of(client).mechanisms());
  worst_.emplace();
  for (const auto client : worst_among(all)) {
    const double epsilon = epsilon_of(all[client]);
    if (epsilon > worst_->epsilon) worst_ = Worst{client, epsilon};
  }
  return *worst_;
}

bool RecordPrivacy::is_spent() {
  const double target = parts_.setting.options.target_epsilon;
  if (target <= 0) return false;
  std::vector<privacy::Mechanisms> after;  // another round
  for (const int number : parts_.setting.clients_of(round_ + 1)) {
    const auto client = static_cast<std::size_t>(number);
    auto ledger = ledgers_.of(client);
    const auto mechanism = mechanism_of(client);
    ledger.add_steps(mechanism, mechanism.steps);
    after.push_back(ledger.mechanisms());
  }
  bool spent = false;
  for (const auto i : worst_among(after)) spent = spent || epsilon_of(after[i]) > target;
  return same_on_all_ranks(parts_, spent ? 1 : 0) > 0;
}

PrivateTraining::Terms RecordPrivacy::terms() const {
  const auto& options = parts_.setting.options;
  return {.delta = options.dp_delta,
          .clip = options.dp_clip,
          .noise = noise_multiplier_,
          .rate = mechanism_of(worst().client).rate,
          .target_epsilon = options.target_epsilon};
}

std::vector<PrivateTraining::OfClient> RecordPrivacy::by_client() const {
  constexpr std::size_t kMostByLoss = 100;  // each takes some tenths of a second, by Renyi divergences less
  std::map<std::string, double> known;      // by ledger
  std::vector<OfClient> all;
  for (std::size_t client = 0; client < ledgers_.size(); ++client) {
    const auto& ledger = ledgers_.of(client);
    const auto [place, is_new] = known.try_emplace(ledger.lines(), 0.0);
    if (is_new) {
      place->second = known.size() <= kMostByLoss
                          ? epsilon_of(ledger.mechanisms())
                          : privacy::renyi_epsilon(ledger.mechanisms(), parts_.setting.options.dp_delta);
    }
    all.push_back({.client = static_cast<int>(client),
                   .steps = ledger.steps(),
                   .rate = mechanism_of(client).rate,
                   .epsilon = place->second});
  }
  return all;
}

std::string RecordPrivacy::in_words() const {
  const auto& options = parts_.setting.options;
  double least = 1;
  double most = 0;
  for (const auto& facts : parts_.setting.clients) {
    least = std::min(least, local_mechanism(facts).rate);
    most = std::max(most, local_mechanism(facts).rate);
  }
  return fmt::format(
      "each record of a client, one more or less; clip {:g}, noise {:.4f} x clip ({}), records of a local "
      "step drawn by poisson with rate {:.6g} to {:.6g}, accountant {}, of the worst client{}",
      options.dp_clip, noise_multiplier_, options.noise_source, least, most, options.dp_accountant,
      clipper_.obstacle().empty() ? ""
                                  : "; samples pass through the model one by one: " + clipper_.obstacle());
}

}  // namespace dtrain::parallel
