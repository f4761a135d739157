#include "parallel/strategy/private/private_steps.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"
#include "parallel/gradients/squares.hpp"
#include "parallel/step/step_statistics.hpp"
#include "parallel/strategy/flat_ranges.hpp"
#include "privacy/accountant.hpp"
#include "privacy/draws.hpp"

namespace dtrain::parallel {
namespace {

/// Brings one sample of a micro-batch that was read.
class OneSample final : public SampleSource {
 public:
  OneSample(const Samples& all, std::int64_t index) {
    for (const auto& input : all.inputs) one_.inputs.push_back(input.narrow(0, index, 1));
    one_.targets = all.targets.narrow(0, index, 1);
  }
  Samples take(const StepPlan& /*plan*/, std::size_t /*m*/) override { return one_; }
  std::vector<Samples> look_ahead(const StepPlan& /*plan*/) override { return {one_}; }
  void read_ahead() override {}

 private:
  Samples one_;
};

Answer runs_privately(const Setting& setting) {
  if (setting.mesh.model_ranks() > 1)
    return {"with --dp-clip a rank must know the whole gradient of a sample: use a mesh of data alone"};
  if (setting.half) return {"with --dp-clip gradients are clipped in full precision: use --precision fp32"};
  if (setting.on_device) return {"with --dp-clip the CPU clips: use --device cpu"};
  if (setting.reproducible) return {"with --dp-clip sums agree to rounding only: leave --reproducible out"};
  if (setting.adapts_batch)
    return {"with --dp-clip the expected batch is public and fixed: leave --adaptive-batch out"};
  if (setting.owns_by_speed) return {"with --dp-clip the drawn batches vary: leave --balance data out"};
  if (setting.options.compression != "none")
    return {"with --dp-clip sums travel in all their bits: leave --compression out"};
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

constexpr std::size_t kLedgerNumbers = privacy::Ledger::kMostEntries * privacy::Ledger::kFields;
constexpr auto kSavedNumbers = static_cast<std::int64_t>(kLedgerNumbers + 2);

/// Steps after which no budget is looked at: more than any run makes.
constexpr std::int64_t kEndlessSteps = std::numeric_limits<std::int64_t>::max();

privacy::Accounting accounting_of(const Setting& setting) {
  return privacy::parse_accounting(setting.options.dp_accountant);
}

}  // namespace

privacy::SampledGaussian mechanism_of(const Setting& setting) {
  const auto& options = setting.options;
  privacy::SampledGaussian mechanism{.sampling = privacy::parse_sampling(options.dp_sampler)};
  const auto records = static_cast<double>(std::max<std::int64_t>(setting.records, 1));
  const double batch = std::min(static_cast<double>(setting.global_batch), records);
  mechanism.rate =
      mechanism.sampling == privacy::Sampling::poisson ? batch / records : 1 / std::ceil(records / batch);
  mechanism.steps = setting.total_steps;
  mechanism.noise_multiplier =
      options.dp_noise >= 0
          ? options.dp_noise
          : privacy::noise_for(options.target_epsilon, options.dp_delta, mechanism, accounting_of(setting));
  mechanism.validate();
  return mechanism;
}

Abilities PrivateSteps::can(const Setting& setting) {
  return {.runs = runs_privately(setting),
          .replays_graphs = {"the CPU clips the gradient of each sample"},
          .updates_by_rows = {"noise is added to each row"},
          .rolls_back = {"a step that was made again would have other noise"},
          .copies_parts = {"a private run goes on from checkpoints, with their ledger"},
          .same_bits = {"sums over ranks agree to rounding"},
          .adapts_batch = {"the expected batch is public and fixed"},
          .owns_by_speed = {"the drawn batches vary"}};
}

PrivateSteps::PrivateSteps(const StrategyParts& parts)
    : parts_(parts),
      parameters_(parts.model, parts.dtype),
      optimizer_(optim::make_optimizer(parts.setting.optimizer, parameters_.size(),
                                       update_ranges(parts, parameters_), parameters_.values().options())),
      sum_(parameters_, parts.setting.options.dp_clip),
      control_(parts.world),
      mechanism_(mechanism_of(parts.setting)),
      noise_(
          privacy::make_noise(privacy::parse_noise_source(parts.setting.options.noise_source), parts.seed)),
      saved_(at::zeros({kSavedNumbers}, at::kDouble)) {
  if (!SampleWalk::obstacle(parts.model)) walk_.emplace(parts.model);
  agree_on_seed();
  save_ledger();
  adopt_weights();
}

/// What is drawn is a secret as the noise is: an observer must not know the samples of a step.
void PrivateSteps::agree_on_seed() {
  double noise = mechanism_.noise_multiplier;  // found by each rank: they must not differ by a rounding
  parts_.data.all_reduce(comm::Buffer::of(std::span(&noise, 1)), comm::ReduceOp::max).wait();
  mechanism_.noise_multiplier = noise;
  const bool secret =
      privacy::parse_noise_source(parts_.setting.options.noise_source) == privacy::NoiseSource::secure;
  std::int64_t seed = 0;
  if (parts_.data.rank() == 0)
    seed = static_cast<std::int64_t>((secret ? privacy::secret_seed() : parts_.seed) >> 1);
  parts_.data.all_reduce(comm::Buffer::of(std::span(&seed, 1)), comm::ReduceOp::max).wait();
  draw_seed_ = static_cast<std::uint64_t>(seed);
}

void PrivateSteps::adopt_weights() {
  broadcast_parameters(parts_.data, parameters_.values());
  broadcast_buffers(parts_.data, parts_.model);
}

/// Poisson draws of a resumed run are new ones: a step that is made again is a step of other records, as the
/// accountant takes it. Within an epoch in which each record takes part once the draws stay.
void PrivateSteps::adopt_optimizer() {
  const auto numbers = std::span(saved_.const_data_ptr<double>(), static_cast<std::size_t>(saved_.numel()));
  ledger_ = privacy::Ledger::of_numbers(numbers.first(kLedgerNumbers));
  if (mechanism_.sampling == privacy::Sampling::once_an_epoch) {
    draw_seed_ = static_cast<std::uint64_t>(numbers[kLedgerNumbers]) << 32 |
                 static_cast<std::uint64_t>(numbers[kLedgerNumbers + 1]);
  }
  save_ledger();
  steps_left_.reset();
}

void PrivateSteps::take_ledger(const privacy::Ledger& earlier) {
  ledger_.take_larger(earlier);
  save_ledger();
  steps_left_.reset();
}

void PrivateSteps::save_ledger() {
  auto* const to = saved_.mutable_data_ptr<double>();
  const auto numbers = ledger_.numbers();
  std::ranges::copy(numbers, to);
  to[kLedgerNumbers] = static_cast<double>(draw_seed_ >> 32);
  to[kLedgerNumbers + 1] = static_cast<double>(draw_seed_ & 0xFFFFFFFFU);
}

std::vector<std::vector<std::int64_t>> PrivateSteps::draws(int epoch) const {
  const auto records = parts_.setting.records;
  const auto batch = parts_.setting.global_batch;
  const auto steps = (records + batch - 1) / batch;
  if (mechanism_.sampling == privacy::Sampling::once_an_epoch)
    return privacy::once_an_epoch_draws(records, steps, draw_seed_, epoch);
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t step = 0; step < steps; ++step)
    all.push_back(
        privacy::poisson_draw(records, mechanism_.rate, draw_seed_, (epoch - 1) * steps + step + 1));
  return all;
}

PrivateTraining::Terms PrivateSteps::terms() const {
  const auto& options = parts_.setting.options;
  return {.delta = options.dp_delta,
          .clip = options.dp_clip,
          .noise = mechanism_.noise_multiplier,
          .rate = mechanism_.rate,
          .target_epsilon = options.target_epsilon};
}

StateView PrivateSteps::state() {
  std::vector<StateTensor> more;
  more.push_back({.group = std::string(StateTensor::kOptimizer) + "privacy",
                  .name = "ledger",
                  .value = saved_,
                  .slice = nullptr,
                  .owner = {.pipe = 0}});
  return {parameters_, parts_.model, *optimizer_, {}, std::move(more)};
}

void PrivateSteps::begin_step(int /*micro_batches*/) {
  for (const auto& entry : parameters_.entries()) entry.parameter->value.mutable_grad().reset();
}

void PrivateSteps::taken_back(int /*index*/) { sum_.take_sample(); }

/// Each sample as a micro-batch of its own.
models::LossSums PrivateSteps::one_by_one(const StepPlan& plan, std::size_t m, const Samples& samples) {
  const auto& micro_batch = plan.micro_batches[m];
  models::LossSums all;
  for (std::int64_t i = 0; i < micro_batch.samples(); ++i) {
    StepPlan one{.number = plan.number};
    // Masks depend on the index: one that no other sample of the step has.
    const auto index = micro_batch.index + static_cast<std::uint32_t>(i * parts_.setting.micro_batches);
    one.micro_batches.push_back({.index = index, .ids = {micro_batch.ids[static_cast<std::size_t>(i)]}});
    OneSample source(samples, i);
    for (const auto& loss : parts_.engine.compute(one, source, *this, 1.0)) {
      all.loss = all.loss.defined() ? all.loss + loss.sums.loss : loss.sums.loss;
      if (loss.sums.correct.defined())
        all.correct = all.correct.defined() ? all.correct + loss.sums.correct : loss.sums.correct;
      all.weight += loss.sums.weight;
      all.counted += loss.sums.counted;
    }
  }
  return all;
}

/// To this rank's share of the elements; the gaps between parameters have none.
void PrivateSteps::add_noise(std::int64_t number) {
  const double deviation = mechanism_.noise_multiplier * parts_.setting.options.dp_clip;
  if (deviation == 0) return;
  const auto own = part_of(parameters_.size(), parts_.data.rank(), parts_.data.size());
  auto& values = sum_.values();
  for (const auto& entry : parameters_.entries()) {
    const auto begin = std::max(own.begin, entry.offset);
    const auto end = std::min(own.end, entry.offset + entry.count);
    if (begin >= end) continue;
    const auto count = static_cast<std::size_t>(end - begin);
    if (values.scalar_type() == at::kDouble) {
      noise_->add(std::span(values.mutable_data_ptr<double>() + begin, count), deviation, number, begin);
    } else {
      noise_->add(std::span(values.mutable_data_ptr<float>() + begin, count), deviation, number, begin);
    }
  }
}

StepOutcome PrivateSteps::step(const StepPlan& plan, SampleSource& samples) {
  StepOutcome outcome;
  sum_.begin_step();
  for (std::size_t m = 0; m < plan.micro_batches.size(); ++m) {
    const auto read = samples.take(plan, m);
    const auto& micro_batch = plan.micro_batches[m];
    const models::Context context{
        .mode = models::Mode::training,
        .seed = parts_.seed,
        .step = static_cast<std::uint32_t>(plan.number),
        .micro_batch = micro_batch.index,
        .kernels = parts_.setting.own_kernels ? models::Kernels::own : models::Kernels::libtorch};
    const ScopedSpan span(parts_.sink, Phase::backward, "clip samples");
    outcome.own.add(walk_ ? walk_->add(read, context, parts_.training_loss, sum_) : one_by_one(plan, m, read),
                    micro_batch.samples());
    outcome.own.micro_batches += 1;
  }
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "noise");
    add_noise(plan.number);
  }
  const at::NoGradGuard no_grad;
  parts_.data.all_reduce(buffer_of(sum_.values()), comm::ReduceOp::sum, parts_.buckets.algorithm).wait();
  outcome.own.non_finite = static_cast<double>(sum_.not_finite());
  const auto agreed = control_.agree(outcome.own, parts_.requests ? parts_.requests() : StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  require(outcome.total.non_finite == 0 && std::isfinite(outcome.total.loss),
          fmt::format("step {} has a loss or a sample's gradient that is not finite", plan.number),
          {.subject = "training", .advice = "use a smaller --learning-rate, or look at the data"});
  double squares = 0;
  for (const auto& part : squares_of(sum_.values(), std::vector<Range>{{0, parameters_.size()}}))
    squares += part.sum;
  const double batch = mechanism_.rate * static_cast<double>(parts_.setting.records);
  outcome.gradient_norm = std::sqrt(squares) / batch;
  const double clip = optim::clip_coefficient(outcome.gradient_norm, parts_.grad_clip);
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
    ledger_.add_step(mechanism_);
    save_ledger();
    if (steps_left_) --*steps_left_;
    optimizer_->step(parameters_.values(), sum_.values(), clip / batch, plan.learning_rate, plan.number);
  }
  return outcome;
}

void PrivateSteps::compare_copies(std::int64_t number) {
  require_same_copies(parts_.data, parts_.world, parts_.model, parameters_.values(), number);
}

bool PrivateSteps::is_spent() {
  const auto& options = parts_.setting.options;
  if (!steps_left_) {
    const auto most = 2 * parts_.setting.total_steps + 1000;
    steps_left_ = options.target_epsilon > 0
                      ? privacy::steps_within(options.target_epsilon, options.dp_delta, ledger_.mechanisms(),
                                              mechanism_, accounting_of(parts_.setting), most)
                      : kEndlessSteps;
    // Computed by each rank: they must not differ by a rounding.
    parts_.data.all_reduce(comm::Buffer::of(std::span(&*steps_left_, 1)), comm::ReduceOp::min).wait();
  }
  return *steps_left_ <= 0;
}

double PrivateSteps::epsilon() const {
  return privacy::epsilon_of(ledger_.mechanisms(), parts_.setting.options.dp_delta,
                             accounting_of(parts_.setting));
}

std::string PrivateSteps::in_words() const {
  const auto& options = parts_.setting.options;
  return fmt::format(
      "each record, one more or less; clip {:g}, noise {:.4f} x clip ({}), sampler {} with rate {:.6g}, "
      "accountant {}{}",
      options.dp_clip, mechanism_.noise_multiplier, options.noise_source, options.dp_sampler, mechanism_.rate,
      options.dp_accountant, walk_ ? "" : "; samples pass through the model one by one");
}

}  // namespace dtrain::parallel
