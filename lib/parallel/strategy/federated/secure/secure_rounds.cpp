#include "parallel/strategy/federated/secure/secure_rounds.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "parallel/data_types.hpp"
#include "secure_aggregation/masks.hpp"

namespace dtrain::parallel {
namespace {

namespace sums = secure_aggregation;

constexpr std::size_t kBytesOfAClient = 256;  // in the longest lists of clients
constexpr std::size_t kOtherBytes = 4096;     // of a message

bool has_statistics(models::Model& model) {
  return std::ranges::any_of(
      model.buffers(), [](const auto* buffer) { return buffer->update != models::Buffer::Update::constant; });
}

}  // namespace

Answer SecureRounds::can(const Setting& setting) {
  const auto& options = setting.options.federated;
  if (!options.secure.on()) return {};
  if (setting.mesh.data < 2)
    return {"the server of --secure-aggregation is a rank without clients: start at least 2 ranks"};
  if (options.rule != "fedavg")
    return {"--secure-aggregation sums updates, and not what --federated-rule " + options.rule +
            " has to know besides"};
  if (setting.model != nullptr && has_statistics(*setting.model))
    return {"--secure-aggregation sums values up to --secure-clip, and running statistics have no bound"};
  return {};
}

SecureRounds::SecureRounds(const StrategyParts& parts, std::int64_t values, const FederatedPrivacy* privacy)
    : parts_(parts),
      options_(secure_options(parts.setting, values)),
      values_(values),
      local_epochs_(parts.setting.options.federated.local_epochs),
      privacy_(privacy),
      letters_(parts_.data, parts_.queue),
      settings_(secure_settings(parts.setting, values)),
      random_(options_.masked() ? std::make_unique<privacy::Keystream>() : nullptr) {
  require(parts.clock == nullptr, "a virtual clock knows no times of masks",
          {.subject = "--secure-aggregation",
           .advice = "use clock = \"real\", or leave --emulate out",
           .code = ExitCode::usage});
  require(parts.data.world_rank_of(0) == 0,
          "the rank of the server is lost, and the others have held updates of clients",
          {.subject = "--secure-aggregation",
           .advice = "start the run again: it resumes from its newest checkpoint",
           .code = ExitCode::lost_rank});
}

SecureRounds::~SecureRounds() = default;

int SecureRounds::place_of(int client) const {
  const auto& asked = round_->asked;
  const auto found = std::ranges::lower_bound(asked, client);
  require(found != asked.end() && *found == client, "a client has not been sampled",
          {.subject = "--secure-aggregation", .advice = "report this as a bug"});
  return static_cast<int>(found - asked.begin());
}

void SecureRounds::begin(const StepPlan& plan) {
  round_ = plan.round;
  settings_ = secure_settings(options_, {.clients = static_cast<int>(round_->asked.size()),
                                         .most_samples = round_->most_samples,
                                         .values = values_});
  settings_.round = static_cast<std::uint64_t>(plan.number);
  letters_.expect_at_most((settings_.length + 1) * sizeof(std::int64_t) +
                          kBytesOfAClient * round_->asked.size() + kOtherBytes);
  has_failed_ = false;
  problem_.clear();
  refused_ = 0;
  rank_of_.clear();
  own_.clear();
  in_plain_.clear();
  if (is_server() && !std::exchange(has_told_, true) && parts_.tell)
    parts_.tell("secure_aggregation", in_words(options_, settings_));
  for (const auto& work : round_->clients)
    own_.push_back({.place = place_of(work.client), .answers = work.answers});
  for (const auto& dropout : round_->dropouts)
    own_.push_back({.place = place_of(dropout.client), .answers = dropout.answers});
  if (!options_.masked()) {
    if (is_server())
      plain_.assign((settings_.length + 1) * static_cast<std::size_t>(settings_.format.ring_bits / 8), {});
    return;
  }
  make_clients();
  run_phase(Phase::keys, [](Own& own) { return own.client->advertise_keys(); });
  if (!has_failed_) run_phase(Phase::shares, [](Own& own) { return own.client->share_keys(own.received); });
}

/// With new identities, of which all ranks get the public keys. Collective.
void SecureRounds::make_clients() {
  constexpr std::size_t kWords = sizeof(sums::PublicKey) / sizeof(std::int64_t);
  std::vector<std::int64_t> keys(round_->asked.size() * kWords, 0);  // those of other ranks' clients are 0
  std::vector<sums::Secret> secrets(own_.size());
  for (std::size_t i = 0; i < own_.size(); ++i) {
    random_->fill(secrets[i].bytes());
    const auto key = sums::ed25519_public(secrets[i]);
    std::memcpy(&keys[static_cast<std::size_t>(own_[i].place) * kWords], key.data(), key.size());
  }
  parts_.data.all_reduce(comm::Buffer::of(std::span<std::int64_t>(keys)), comm::ReduceOp::sum).wait();
  for (std::size_t place = 0; place < settings_.identities.size(); ++place) {
    auto& identity = settings_.identities[place];
    std::memcpy(identity.data(), &keys[place * kWords], identity.size());
  }
  for (std::size_t i = 0; i < own_.size(); ++i)
    own_[i].client = std::make_unique<sums::Client>(settings_, own_[i].place, secrets[i], *random_);
  server_.reset();
  if (is_server()) server_.emplace(settings_);
}

void SecureRounds::run_phase(Phase phase, const Reply& reply) {
  for (auto& own : own_) answer(own, phase, reply);
  end_phase(phase);
}

/// Sends what the client says, unless it has dropped out. One that finds the protocol broken takes no further
/// part.
void SecureRounds::answer(Own& own, Phase phase, const Reply& reply) {
  own.is_in = own.is_in && static_cast<int>(phase) < own.answers;
  if (!own.is_in) return;
  sums::Bytes bytes;
  try {
    bytes = reply(own);
  } catch (const Error& error) {
    if (error.code() == ExitCode::usage) throw;
    own.is_in = false;
    return;
  }
  letters_.send(0, own.place, bytes);
}

/// The server takes what the clients have sent, and answers those that go on.
void SecureRounds::end_phase(Phase phase) {
  if (is_server()) {
    letters_.receive_all(1, [this](int rank, int place, sums::View bytes) { take(rank, place, bytes); });
    close_phase();
    if (phase != Phase::unmasking) deliver();
    return;
  }
  letters_.send_end(0);
  if (phase == Phase::unmasking) return;
  std::vector<bool> answered(round_->asked.size(), false);
  const auto end = letters_.receive(0, [&](int, int place, sums::View bytes) {
    for (auto& own : own_) {
      if (own.place != place) continue;
      own.received.assign(bytes.begin(), bytes.end());
      answered[static_cast<std::size_t>(place)] = true;
    }
  });
  for (auto& own : own_) own.is_in = own.is_in && answered[static_cast<std::size_t>(own.place)];
  has_failed_ = end == Letters::End::failed;
}

void SecureRounds::take(int rank, int place, sums::View bytes) {
  const bool exists = place >= 0 && place < settings_.clients();
  const bool is_from_there = exists && rank_of_.try_emplace(place, rank).first->second == rank;
  try {
    require(is_from_there, "a message is in the name of another rank's client",
            {.subject = "--secure-aggregation"});
    server_->take(place, bytes);
  } catch (const Error&) {
    ++refused_;  // its client is left out
  }
}

void SecureRounds::close_phase() {
  try {
    server_->close_phase();
  } catch (const Error& error) {
    has_failed_ = true;
    problem_ = fmt::format("{}: {}", error.subject(), error.problem());
  }
}

void SecureRounds::deliver() {
  for (int rank = 1; rank < parts_.data.size(); ++rank) {
    if (!has_failed_) {
      for (const int place : server_->expected()) {
        if (rank_of_.at(place) == rank) letters_.send(rank, place, server_->message_for(place));
      }
    }
    letters_.send_end(rank, has_failed_ ? Letters::End::failed : Letters::End::phase);
  }
}

void SecureRounds::show_life() {
  if (is_server() || steady_s() - life_sign_s_ < kLifeSignS) return;
  life_sign_s_ = steady_s();
  letters_.send_life_sign(0);
}

/// [length] What is summed.
std::vector<float> SecureRounds::values_of(const at::Tensor& update, const StepTotals& totals) const {
  const double largest = options_.clip;
  const auto narrow = update.to(at::kFloat).contiguous();
  const auto* const from = narrow.const_data_ptr<float>();
  std::vector<float> values(from, from + values_);
  values.resize(settings_.length, 0.0F);
  if (options_.noise > 0) return values;
  const auto cut = std::count_if(values.begin(), values.begin() + values_,
                                 [&](float value) { return std::abs(static_cast<double>(value)) > largest; });
  const auto set = [&](std::int64_t extra, double part) {
    values[static_cast<std::size_t>(values_ + extra)] = static_cast<float>(part * largest);
  };
  const double loss = totals.weight > 0 ? totals.loss / totals.weight / SecureExtras::kMostLoss : 0;
  set(SecureExtras::kLoss, std::clamp(loss, -1.0, 1.0));
  set(SecureExtras::kLossCut, std::abs(loss) > 1 ? 1 : 0);
  set(SecureExtras::kAccuracy, totals.counted > 0 ? totals.correct / totals.counted : -1);
  // No cut value goes unseen.
  const double least = 1.0 / static_cast<double>(settings_.format.largest_integer());
  set(SecureExtras::kCut,
      cut > 0 ? std::max(static_cast<double>(cut) / static_cast<double>(values_), least) : 0);
  return values;
}

bool SecureRounds::hand_in(const ClientUpdate& update, StepTotals& /*own*/) {
  if (options_.noise > 0) clip_to(update.parameters, options_.largest_norm());
  if (!UpdateSum::is_summable(update.parameters) || !std::isfinite(update.totals.loss)) return false;
  const int place = place_of(update.work.client);
  const auto found = std::ranges::find(own_, place, &Own::place);
  const auto values = values_of(update.parameters, update.totals);
  const auto weight =
      settings_.format.weight_bits == 0 ? std::uint64_t{1} : static_cast<std::uint64_t>(update.work.samples);
  answer(*found, Phase::masked_inputs, [&](Own& client) {
    return options_.masked() ? client.client->mask_input(client.received, values, weight)
                             : sums::encode(settings_.format, values, weight, "--secure-aggregation").words;
  });
  return true;
}

void SecureRounds::add_plain(int place, sums::View words) {
  require(words.size() == plain_.size(), "an update has another number of values than the round",
          {.subject = "--secure-aggregation", .advice = "start the same dtrain on all ranks"});
  sums::add_words(plain_, words, settings_.format.ring_bits);
  in_plain_.push_back(place);
}

sums::Sum SecureRounds::sum() const {
  if (options_.masked()) return server_->sum();
  sums::Sum sum;
  sum.values.resize(settings_.length);
  for (std::size_t i = 0; i < settings_.length; ++i)
    sum.values[i] = sums::element(settings_.format, plain_, i);
  sum.weight = sums::element(settings_.format, plain_, settings_.length);
  sum.clients = in_plain_;
  return sum;
}

RoundSum::Result SecureRounds::finish(at::Tensor& mean) {
  if (!options_.masked()) {
    if (is_server()) {
      letters_.receive_all(1, [this](int, int place, sums::View words) { add_plain(place, words); });
      has_failed_ = static_cast<int>(in_plain_.size()) < settings_.minimum_survivors;
      if (has_failed_) {
        problem_ =
            fmt::format("round {}, masked inputs: {} of {} clients have answered, and a sum needs {}",
                        settings_.round, in_plain_.size(), settings_.clients(), settings_.minimum_survivors);
      }
    } else {
      letters_.send_end(0);
    }
  } else if (!has_failed_) {
    end_phase(Phase::masked_inputs);
    if (!has_failed_)
      run_phase(Phase::survivors, [](Own& own) { return own.client->sign_survivors(own.received); });
    if (!has_failed_)
      run_phase(Phase::unmasking, [](Own& own) { return own.client->reveal_shares(own.received); });
  }
  own_.clear();  // with their secrets
  Result result;
  give_mean(mean, result);
  return result;
}

void SecureRounds::give_mean(at::Tensor& mean, Result& result) {
  const at::NoGradGuard no_grad;
  enum Fact : std::size_t { kClients, kWeight, kLoss, kAccuracy, kCut, kLossCut, kFacts };
  std::array<double, kFacts> facts{};
  if (is_server() && !has_failed_) {
    const auto found = sum();
    const auto means = found.means(settings_.format);
    const auto part = [&](std::int64_t extra) {
      return means[static_cast<std::size_t>(values_ + extra)] / options_.clip;
    };
    facts = {static_cast<double>(found.clients.size()),
             static_cast<double>(found.weight),
             part(SecureExtras::kLoss) * SecureExtras::kMostLoss,
             part(SecureExtras::kAccuracy),
             part(SecureExtras::kCut),
             part(SecureExtras::kLossCut)};
    if (privacy_ != nullptr && parts_.keep_ledger) parts_.keep_ledger(privacy_->ledger_after(*round_));
    mean.copy_(at::from_blob(const_cast<double*>(means.data()), {values_}, at::kDouble));
  }
  parts_.data.broadcast(comm::Buffer::of(std::span<double>(facts)), 0).wait();
  result.clients = static_cast<int>(std::lround(facts[kClients]));
  result.is_update = result.clients > 0;
  result.problem = problem_;
  if (result.clients > 0) parts_.data.broadcast(buffer_of(mean), 0).wait();
  if (options_.noise == 0 && result.clients > 0) {
    result.samples = std::llround(facts[kWeight]);
    const double samples = facts[kWeight] * local_epochs_;
    result.totals.samples = samples;
    if (facts[kLossCut] == 0) {  // otherwise the mean loss is not known
      result.totals.weight = samples;
      result.totals.loss = facts[kLoss] * samples;
    }
    result.totals.counted = facts[kAccuracy] < 0 ? 0 : samples;
    result.totals.correct = facts[kAccuracy] < 0 ? 0 : facts[kAccuracy] * samples;
  }
  if (is_server()) tell_of(result, facts[kCut]);
}

void SecureRounds::tell_of(Result& result, double cut) {
  if (!parts_.tell) return;
  if (refused_ > 0) {
    parts_.tell("secure_aggregation",
                fmt::format("round {}: {} messages were refused", settings_.round, refused_));
  }
  if (cut > 0 && options_.noise == 0) {
    const auto words =
        fmt::format("round {}: {:.2g} % of all values were beyond --secure-clip {:g}, and were cut",
                    settings_.round, 100 * cut, options_.clip);
    parts_.tell("secure_clip", words);
    if (!std::exchange(has_cut_, true)) result.news = words;
  }
}

}  // namespace dtrain::parallel
