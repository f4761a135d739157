#include "parallel/strategy/private/private_account.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::size_t kLedgerNumbers = privacy::Ledger::kMostEntries * privacy::Ledger::kFields;
constexpr auto kSavedNumbers = static_cast<std::int64_t>(kLedgerNumbers + 2);

/// Steps after which no budget is looked at: more than any run makes.
constexpr std::int64_t kEndlessSteps = std::numeric_limits<std::int64_t>::max();

}  // namespace

Answer can_be_private(const Setting& setting) {
  if (setting.mesh.model_ranks() > 1)
    return {"with --dp-clip a rank must know the whole gradient of a sample: use a mesh of data alone"};
  if (setting.half) return {"with --dp-clip gradients are clipped in full precision: use --precision fp32"};
  if (setting.on_device) return {"with --dp-clip the CPU clips: use --device cpu"};
  if (setting.class_weights)
    return {
        "with --dp-clip weights of classes, which are counted in the data, would be released: leave "
        "--class-weights out"};
  if (setting.model == nullptr) return {};
  for (const auto* buffer : setting.model->buffers()) {
    if (buffer->update == models::Buffer::Update::constant) continue;
    return {
        fmt::format("with --dp-clip a sample may not change what others compute, and {} is a statistic of "
                    "BatchNorm: use a model with GroupNorm or LayerNorm, or without",
                    buffer->name)};
  }
  return {};
}

privacy::Accounting accounting_of(const StrategyOptions& options) {
  return privacy::parse_accounting(options.dp_accountant);
}

namespace {

/// Throws Error where not even one step with the noise that the user has chosen keeps to the epsilon.
void require_a_step(const privacy::SampledGaussian& mechanism, const StrategyOptions& options) {
  if (options.dp_noise < 0 || options.target_epsilon <= 0) return;
  const auto steps = privacy::steps_within(options.target_epsilon, options.dp_delta, {}, mechanism,
                                           accounting_of(options), 1);
  require_option(steps > 0,
                 fmt::format("the first step with a noise of {:g} releases more at delta {:g}",
                             options.dp_noise, options.dp_delta),
                 fmt::format("--target-epsilon {:g}", options.target_epsilon),
                 "use more --dp-noise, or leave it out: the noise is then as much as it takes");
}

}  // namespace

privacy::SampledGaussian with_noise(privacy::SampledGaussian mechanism, const StrategyOptions& options) {
  mechanism.noise_multiplier =
      options.dp_noise >= 0
          ? options.dp_noise
          : privacy::noise_for(options.target_epsilon, options.dp_delta, mechanism, accounting_of(options));
  mechanism.validate();
  require_a_step(mechanism, options);
  return mechanism;
}

std::unique_ptr<privacy::Noise> noise_of(const StrategyParts& parts) {
  return privacy::make_noise(privacy::parse_noise_source(parts.setting.options.noise_source), parts.seed);
}

std::uint64_t agreed_draw_seed(const StrategyParts& parts) {
  const bool secret =
      privacy::parse_noise_source(parts.setting.options.noise_source) == privacy::NoiseSource::secure;
  std::int64_t seed = 0;
  // A run's seed is below 2^63; the largest of the ranks' numbers is to be that of rank 0.
  if (parts.data.rank() == 0)
    seed = static_cast<std::int64_t>(secret ? privacy::secret_seed() >> 1 : parts.seed);
  parts.data.all_reduce(comm::Buffer::of(std::span(&seed, 1)), comm::ReduceOp::max).wait();
  return static_cast<std::uint64_t>(seed);
}

double same_on_all_ranks(const StrategyParts& parts, double number) {
  parts.data.all_reduce(comm::Buffer::of(std::span(&number, 1)), comm::ReduceOp::max).wait();
  return number;
}

void add_noise(privacy::Noise& noise, const FlatParameters& parameters, const Range& part, double deviation,
               std::int64_t step, at::Tensor values) {
  if (deviation == 0) return;
  for (const auto& entry : parameters.entries()) {
    const auto begin = std::max(part.begin, entry.offset);
    const auto end = std::min(part.end, entry.offset + entry.count);
    if (begin >= end) continue;
    const auto count = static_cast<std::size_t>(end - begin);
    const auto place = begin - part.begin;
    if (values.scalar_type() == at::kDouble) {
      noise.add(std::span(values.mutable_data_ptr<double>() + place, count), deviation, step, begin);
    } else {
      noise.add(std::span(values.mutable_data_ptr<float>() + place, count), deviation, step, begin);
    }
  }
}

PrivateAccount::PrivateAccount(const StrategyParts& parts, const privacy::SampledGaussian& mechanism,
                               const std::string& unit)
    : data_(parts.data),
      options_(parts.setting.options),
      total_steps_(parts.setting.total_steps),
      mechanism_(mechanism),
      unit_(unit),
      draw_seed_(agreed_draw_seed(parts)),
      saved_(at::zeros({kSavedNumbers}, at::kDouble)) {
  mechanism_.noise_multiplier = same_on_all_ranks(parts, mechanism.noise_multiplier);
  save();
}

void PrivateAccount::save() {
  auto* const to = saved_.mutable_data_ptr<double>();
  const auto numbers = ledger_.numbers();
  std::ranges::copy(numbers, to);
  to[kLedgerNumbers] = static_cast<double>(draw_seed_ >> 32);
  to[kLedgerNumbers + 1] = static_cast<double>(draw_seed_ & 0xFFFFFFFFU);
}

/// Poisson draws of a resumed run are new ones: a step that is made again is a step of other records, as the
/// accountant takes it. Within an epoch in which each record takes part once the draws stay.
void PrivateAccount::adopt_ledger() {
  const auto numbers = std::span(saved_.const_data_ptr<double>(), static_cast<std::size_t>(saved_.numel()));
  ledger_ = privacy::Ledger::of_numbers(numbers.first(kLedgerNumbers));
  if (mechanism_.sampling == privacy::Sampling::once_an_epoch) {
    draw_seed_ = static_cast<std::uint64_t>(numbers[kLedgerNumbers]) << 32 |
                 static_cast<std::uint64_t>(numbers[kLedgerNumbers + 1]);
  }
  save();
  steps_left_.reset();
}

void PrivateAccount::add_step() {
  ledger_.add_step(mechanism_);
  save();
  if (steps_left_) --*steps_left_;
}

std::string PrivateAccount::ledger_after_step() const {
  auto after = ledger_;
  after.add_step(mechanism_);
  return after.lines(unit_);
}

std::int64_t PrivateAccount::take_ledger(const std::string& lines, const std::string& file) {
  const auto before = ledger_.steps();
  ledger_.take_larger(privacy::Ledger::of_lines(lines, file, unit_));
  save();
  steps_left_.reset();
  return ledger_.steps() - before;
}

StateTensor PrivateAccount::ledger_state() {
  return {.group = std::string(StateTensor::kOptimizer) + "privacy",
          .name = unit_.empty() ? "ledger" : "ledger_of_" + unit_ + "s",
          .value = saved_,
          .slice = nullptr,
          .owner = {.pipe = 0},
          .outlives_reset = true};
}

bool PrivateAccount::is_spent() {
  if (!steps_left_) {
    const auto most = 2 * total_steps_ + 1000;
    steps_left_ = options_.target_epsilon > 0
                      ? privacy::steps_within(options_.target_epsilon, options_.dp_delta,
                                              ledger_.mechanisms(), mechanism_, accounting_of(options_), most)
                      : kEndlessSteps;
    // Computed by each rank: they must not differ by a rounding.
    data_.all_reduce(comm::Buffer::of(std::span(&*steps_left_, 1)), comm::ReduceOp::min).wait();
  }
  return *steps_left_ <= 0;
}

double PrivateAccount::epsilon() const {
  return privacy::epsilon_of(ledger_.mechanisms(), options_.dp_delta, accounting_of(options_));
}

PrivateTraining::Terms PrivateAccount::terms() const {
  return {.delta = options_.dp_delta,
          .clip = clip(),
          .noise = mechanism_.noise_multiplier,
          .rate = mechanism_.rate,
          .target_epsilon = options_.target_epsilon,
          .unit = unit_.empty() ? "record" : unit_};
}

}  // namespace dtrain::parallel
