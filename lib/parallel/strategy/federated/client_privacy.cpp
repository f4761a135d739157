#include "parallel/strategy/federated/client_privacy.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.hpp"
#include "privacy/draws.hpp"

namespace dtrain::parallel {
namespace {

/// A round of the run: the noise that was given, or that the target asks for.
privacy::SampledGaussian mechanism_of_round(const Setting& setting) {
  const auto& options = setting.options;
  require(!setting.clients.empty(), "does not know how many clients there are",
          {.subject = "--dp-unit client", .advice = "report this as a bug"});
  const privacy::SampledGaussian mechanism{
      .sampling = privacy::Sampling::poisson,
      .rate = static_cast<double>(clients_of_round(setting)) / static_cast<double>(setting.clients.size()),
      .steps = setting.total_steps};
  return with_noise(mechanism, options);
}

}  // namespace

Answer ClientPrivacy::can(const Setting& setting) {
  const auto& rule = setting.options.federated.rule;
  if (rule == "fednova") return {"with --dp-unit client all updates count alike, whatever their local steps"};
  if (rule == "scaffold")
    return {"with --dp-unit client the control variates of clients would be released without noise"};
  if (rule == "local")
    return {"with --dp-unit client there is nothing to add noise to: no client hands anything in"};
  return {};
}

ClientPrivacy::ClientPrivacy(const StrategyParts& parts, const FlatParameters& parameters)
    : PrivateAccount(parts, mechanism_of_round(parts.setting), "client"),
      parts_(parts),
      parameters_(parameters),
      noise_(noise_of(parts)),
      clip_(at::full({1}, parts.setting.options.dp_clip, at::kDouble)) {
  require(clip() <= largest_clip(),
          fmt::format("sums of updates that long do not fit: at most {:.3g} for {} clients", largest_clip(),
                      parts.setting.clients.size()),
          {.subject = fmt::format("--dp-clip {:g}", clip()),
           .advice = "use a smaller one, such as 1",
           .code = ExitCode::usage});
  require(clip() >= smallest_clip(), "is as small as what sums of updates are rounded to",
          {.subject = fmt::format("--dp-clip {:g}", clip()),
           .advice = "use a larger one, such as 1",
           .code = ExitCode::usage});
}

double ClientPrivacy::expected() const { return static_cast<double>(clients_of_round(parts_.setting)); }

double ClientPrivacy::noise_of_bits() const {
  constexpr double kShareOfClients = 0.05;  // the paper's choice; but the bits may not cost more than half
  const double noise = mechanism().noise_multiplier;
  return noise > 0 ? std::max(kShareOfClients * expected(), noise) : 0;
}

double ClientPrivacy::noise_of_update() const {
  const double noise = mechanism().noise_multiplier;
  if (!adapts() || noise == 0) return noise;
  const double bits = 2 * noise_of_bits();
  return 1 / std::sqrt(1 / (noise * noise) - 1 / (bits * bits));
}

/// With which all clients together, and noise beyond any chance, do not overflow the sum.
double ClientPrivacy::largest_clip() const {
  constexpr double kBeyondChance = 64;  // deviations
  return UpdateSum::kLargest * expected() /
         (static_cast<double>(parts_.setting.clients.size()) + kBeyondChance * noise_of_update());
}

/// Below it the rounding of sums to whole units would count.
double ClientPrivacy::smallest_clip() const {
  constexpr double kUnit = 0x1p-40;
  return 4 * std::sqrt(static_cast<double>(parameters_.size())) * kUnit * expected();
}

/// What an update is clipped to: it may become that much longer when it is rounded to its own type and to the
/// units of the sum.
double ClientPrivacy::limit() const { return clip() * (1 - 0x1p-20) - smallest_clip() / 8; }

double ClientPrivacy::hand_in(at::Tensor& update, double /*share*/, UpdateSum& sum) {
  const double norm = clip_to(update, limit());
  if (adapts()) sum.add_number(kBits, norm <= clip() ? 0.5 : -0.5);
  return 1 / expected();
}

void ClientPrivacy::add_noise(std::int64_t round, UpdateSum& sum) {
  if (mechanism().noise_multiplier == 0) return;
  const auto own = part_of(parameters_.size(), parts_.data.rank(), parts_.data.size());
  auto values = at::zeros({own.size()}, at::kDouble);
  parallel::add_noise(*noise_, parameters_, own, noise_of_update() * clip(), round, values);
  sum.add(values, 1 / expected(), own.begin);
  if (!adapts() || parts_.data.rank() != 0) return;
  double bits = 0;
  noise_->add(std::span(&bits, 1), noise_of_bits(), round, parameters_.size());
  sum.add_number(kBits, bits);
}

void ClientPrivacy::take_sum(const UpdateSum& sum) { within_ = 0.5 + sum.number(kBits) / expected(); }

void ClientPrivacy::commit(const StepPlan& /*plan*/, bool /*released*/) {
  add_step();
  if (!adapts()) return;
  const double moved = clip() * std::exp(-kClipRate * (within_ - parts_.setting.options.dp_adaptive_clip));
  clip_.mutable_data_ptr<double>()[0] = std::clamp(moved, smallest_clip(), largest_clip());
}

std::vector<StateTensor> ClientPrivacy::state() {
  return {ledger_state(),
          {.group = std::string(StateTensor::kOptimizer) + "privacy",
           .name = "clip",
           .value = clip_,
           .slice = nullptr,
           .owner = {.pipe = 0}}};
}

std::optional<std::vector<int>> ClientPrivacy::drawn_clients(std::int64_t round) const {
  const auto drawn = privacy::poisson_draw(static_cast<std::int64_t>(parts_.setting.clients.size()),
                                           mechanism().rate, draw_seed(), round);
  return std::vector<int>(drawn.begin(), drawn.end());
}

std::string ClientPrivacy::in_words() const {
  const auto& options = parts_.setting.options;
  const auto adapted =
      adapts() ? fmt::format(
                     ", which follows the quantile {:g} of the updates (noise of their share {:.4f}, of "
                     "updates {:.4f} x clip)",
                     options.dp_adaptive_clip, noise_of_bits(), noise_of_update())
               : std::string();
  return fmt::format(
      "each client, one more or less; clip of updates {:g}{}, noise {:.4f} x clip ({}), clients drawn by "
      "poisson with rate {:.6g}, their sum divided by {:g}, accountant {}",
      clip(), adapted, mechanism().noise_multiplier, options.noise_source, mechanism().rate, expected(),
      options.dp_accountant);
}

}  // namespace dtrain::parallel
