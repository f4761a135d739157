#include "parallel/strategy/synchronous.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/gradients/non_finite.hpp"
#include "parallel/gradients/reproducible_sums.hpp"
#include "parallel/gradients/sharded_sums.hpp"
#include "parallel/gradients/squares.hpp"
#include "parallel/gradients/table_by_rows.hpp"
#include "parallel/strategy/flat_ranges.hpp"
#include "parallel/strategy/synchronous/products.hpp"

namespace dtrain::parallel {
namespace {

using Shards = Synchronous::Shards;

/// Micro-batches that were read before the step's first forward pass.
class GivenSamples final : public SampleSource {
 public:
  explicit GivenSamples(std::vector<Samples> all) : all_(std::move(all)) {}
  Samples take(const StepPlan& /*plan*/, std::size_t m) override { return std::move(all_.at(m)); }
  std::vector<Samples> look_ahead(const StepPlan& /*plan*/) override { return all_; }
  void read_ahead() override {}

 private:
  std::vector<Samples> all_;
};

/// The ranks that share out the state.
comm::Group& sharers(const StrategyParts& parts) {
  return parts.data_in_node != nullptr ? *parts.data_in_node : parts.data;
}

/// Elements of the parameters' type in the room of `size` of them in half precision.
std::int64_t room_for_halves(std::int64_t size) { return (size + 1) / 2; }

/// Room for the parameters, a copy of them in half precision and the optimizer's state; where the latter may
/// be cut into shards, only if all ranks share it.
NodeMemory node_memory(const StrategyParts& parts, Shards shards) {
  const auto size = FlatParameters::size_of(parts.model);
  const auto& rule = parts.setting.optimizer;
  const bool keeps_halves = Synchronous::can(parts.setting, shards).keeps_halves;
  const auto weights = size + (keeps_halves ? room_for_halves(size) : 0);
  const auto all = weights + rule.states_beside() * size;
  const auto options = at::TensorOptions().dtype(parts.dtype).device(parts.device);
  const bool alone = parts.data.size() == 1;  // there is nothing to share out
  const auto own = shards == Shards::nothing || alone ? all : shards == Shards::parameters ? 0 : weights;
  NodeMemory memory(sharers(parts), all, options, own);
  require(memory.shared() || parts.data_in_node == nullptr,
          "the ranks of a node do not see one another's memory, which is to hold the state for all of them",
          {.subject = "--shard-within node",
           .advice = "make room in /dev/shm, or share out among all copies: leave it out"});
  return memory;
}

/// Whether this run's ranks hold shards: of memory that they share each updates a part anyway.
bool cuts_state(const StrategyParts& parts, Shards shards, const NodeMemory& memory) {
  return shards != Shards::nothing && parts.data.size() > 1 && !memory.shared();
}

bool cuts_parameters(const StrategyParts& parts, Shards shards, const NodeMemory& memory) {
  return shards == Shards::parameters && cuts_state(parts, shards, memory);
}

FlatParameters flat_parameters(const StrategyParts& parts, Shards shards, NodeMemory& memory) {
  using Values = FlatParameters::Values;
  if (cuts_parameters(parts, shards, memory)) return {parts.model, memory.take(0), Values::elsewhere};
  const auto trained = parts.model.parameters();
  if (std::ranges::any_of(trained, [](const auto* parameter) { return parameter->value.is_meta(); }))
    parts.model.initialise(parts.seed);  // shards were expected
  return {parts.model, memory.take(FlatParameters::size_of(parts.model)),
          memory.fills() ? Values::put : Values::take};
}

/// The table that is updated by rows; empty: there is none.
std::optional<TableByRows> table_of(const StrategyParts& parts, Shards shards) {
  return Synchronous::can(parts.setting, shards).updates_by_rows ? table_by_rows(parts.setting)
                                                                 : std::nullopt;
}

std::vector<optim::ParameterRange> parameter_ranges(const StrategyParts& parts, Shards shards,
                                                    const FlatParameters& parameters) {
  const auto table = table_of(parts, shards);
  return update_ranges(parts, parameters, table ? table->weight : nullptr);
}

std::unique_ptr<RowUpdates> row_updates(const StrategyParts& parts, Shards shards,
                                        const FlatParameters& parameters, const optim::Optimizer& optimizer,
                                        const NodeMemory& memory) {
  const auto table = table_of(parts, shards);
  if (!table) return nullptr;
  const auto entry =
      std::ranges::find(parameters.entries(), table->weight, &FlatParameters::Entry::parameter);
  const auto copies = memory.shared() ? RowUpdates::Copies::one : RowUpdates::Copies::each;
  return std::make_unique<RowUpdates>(parameters, *entry, parts.data, optimizer, parts.setting.optimizer,
                                      copies, table->limits);
}

/// Ranks that share memory update a part each. Of state in 8 bits each has its part's for itself, since
/// blocks of it end where a part ends.
bool codes_shards(const StrategyParts& parts, const GradientSums& gradients) {
  return parts.setting.optimizer.codes_state() && gradients.updates_parts();
}

/// Null also where no gradients cross between nodes: ranks that share memory are on one.
std::unique_ptr<GradientCompression> compression_of(const StrategyParts& parts, const NodeMemory& memory) {
  if (memory.shared() && parts.data_across == nullptr) return nullptr;
  const auto& options = parts.setting.options;
  return make_compression(CompressionChoice::parse(options.compression), parts.seed,
                          options.compression_after);
}

std::unique_ptr<GradientSums> gradient_sums(const StrategyParts& parts, Shards shards,
                                            FlatParameters& parameters, const NodeMemory& memory,
                                            GradientCompression* compression, const LayerShards* layers) {
  const bool cut = cuts_state(parts, shards, memory);
  if (parts.setting.reproducible) {
    return std::make_unique<ReproducibleSums>(
        parameters, parts.model, parts.data, static_cast<int>(parts.setting.micro_batches),
        memory.shared() || cut, layers != nullptr ? layers->shared_out() : std::vector<Range>(),
        parts.data_in_node);
  }
  if (shards >= Shards::gradients && parts.data.size() > 1) {
    return std::make_unique<ShardedSums>(
        parameters, sharers(parts), parts.queue,
        ShardedSums::Config{.micro_batches = static_cast<int>(parts.setting.micro_batches),
                            .bucket_bytes = parts.buckets.bucket_bytes,
                            .buckets = layers != nullptr ? layers->shared_out() : std::vector<Range>(),
                            .met_again = parts.engine.met_again(),
                            .across = parts.data_across,
                            .compression = compression});
  }
  if (Synchronous::can(parts.setting, shards).makes_products) {
    if (auto products = product_sums(parts, parameters, memory.shared())) return products;
  }
  using Update = BucketConfig::Update;
  BucketConfig config = parts.buckets;
  config.update = memory.shared() ? Update::parts : cut ? Update::shards : Update::everything;
  config.across = parts.data_across;
  config.compression = compression;
  const auto table = table_of(parts, shards);
  const CollectedGradients collected{.left_out = table ? table->weight : nullptr,
                                     .met_again = parts.engine.met_again()};
  return std::make_unique<GradientBuckets>(parameters, sharers(parts), parts.queue, config, collected,
                                           parts.capture);
}

/// Null where products are in full precision, and where this rank has only shards of the parameters.
std::unique_ptr<HalfWeights> half_weights(const StrategyParts& parts, Shards shards,
                                          FlatParameters& parameters, NodeMemory& memory) {
  if (!Synchronous::can(parts.setting, shards).keeps_halves || cuts_parameters(parts, shards, memory))
    return nullptr;
  const at::Tensor room = memory.take(room_for_halves(parameters.size()));
  return std::make_unique<HalfWeights>(parameters,
                                       room.view(*parts.setting.half).narrow(0, 0, parameters.size()));
}

std::unique_ptr<ReproducibleTotals> reproducible_totals(const StrategyParts& parts,
                                                        const FlatParameters& parameters) {
  if (!parts.setting.reproducible) return nullptr;
  return std::make_unique<ReproducibleTotals>(parts.model, parameters, parts.world, parts.data,
                                              static_cast<int>(parts.setting.micro_batches),
                                              parts.counts_common);
}

/// Null where tensor groups round what they have in common alike. By the options alone: all ranks of a group
/// decide alike, whatever their nodes share.
std::unique_ptr<CommonParameters> common_parameters(const StrategyParts& parts, Shards shards,
                                                    const FlatParameters& parameters) {
  const auto& setting = parts.setting;
  const bool rounds_by_place = setting.options.compression != "none" || setting.optimizer.codes_state();
  if (parts.tensor.size() == 1 || !rounds_by_place) return nullptr;
  const auto table = table_of(parts, shards);
  return std::make_unique<CommonParameters>(parameters, table ? table->weight : nullptr, parts.tensor);
}

}  // namespace

Synchronous::Synchronous(const StrategyParts& parts, Shards shards)
    : parts_(parts),
      shards_(shards),
      memory_(node_memory(parts, shards)),
      parameters_(flat_parameters(parts, shards, memory_)),
      compression_(compression_of(parts, memory_)),
      layers_(layer_shards(parts, shards)),
      gradients_(gradient_sums(parts, shards, parameters_, memory_, compression_.get(), layers_.get())),
      gather_(cuts_state(parts, shards, memory_) && layers_ == nullptr
                  ? std::make_unique<ShardGather>(parameters_, parts.data, gradients_->shared_out())
                  : nullptr),
      held_(gather_ != nullptr || layers_ != nullptr || codes_shards(parts, *gradients_)
                ? std::optional(gradients_->update_parts())
                : std::nullopt),
      optimizer_(optim::make_optimizer(
          parts.setting.optimizer, parameters_.size(), parameter_ranges(parts, shards, parameters_),
          parameters_.values().options(),
          held_.has_value() || parts.setting.optimizer.states_beside() == 0
              ? optim::StateAllocator()
              : [this](std::int64_t count) { return memory_.take(count); },
          held_)),
      halves_(half_weights(parts, shards, parameters_, memory_)),
      writes_halves_(halves_ != nullptr && gather_ == nullptr && parts.pipe.size() == 1 &&
                     optimizer_->write_copy_to(halves_->values())),
      rows_(row_updates(parts, shards, parameters_, *optimizer_, memory_)),
      totals_(reproducible_totals(parts, parameters_)),
      control_(parts.world),
      statistics_(parts.model, parts.data,
                  parts.setting.reproducible ? static_cast<int>(parts.setting.micro_batches) : 1),
      tied_(parts.model, parts.cuts, parts.pipe, *gradients_, layers_.get()),
      common_(common_parameters(parts, shards, parameters_)),
      undo_(can(parts.setting, shards).rolls_back
                ? std::make_unique<StepUndo>(parts.data, parameters_, *optimizer_, parts.model,
                                             gradients_->update_parts(), memory_.shared())
                : nullptr),
      counted_parts_(gradients_->holds_parts()
                         ? counted_in_shard(parts_, parameters_, gradients_->own_parts())
                         : counted_parts(parts_, parameters_, gradients_->own_parts())),
      scaler_(parts.setting.half == at::kHalf ? optim::LossScaler::Use::dynamic
                                              : optim::LossScaler::Use::none),
      adaptive_(parts.setting.adapts_batch
                    ? std::make_unique<AdaptiveBatch>(parts.setting.global_batch, parts.setting.optimizer)
                    : nullptr),
      late_(decides_late() ? std::make_unique<LateDecision>() : nullptr),
      late_update_(late_update()) {
  adopt_weights();
}

/// Where the parameters are in shards, the engine has them brought from here on.
std::unique_ptr<LayerShards> Synchronous::layer_shards(const StrategyParts& parts, Shards shards) {
  if (!cuts_parameters(parts, shards, memory_)) return nullptr;
  auto layers = std::make_unique<LayerShards>(
      parts.model, parameters_, parts.data_gathers != nullptr ? *parts.data_gathers : parts.data,
      [this](const models::Parameter* parameter) { gradients_->passed(parameter); }, parts.seed);
  const int micro_batches = static_cast<int>(parts.setting.micro_batches);
  parts.engine.keep_weights(*layers, most_of(even_ownership(micro_batches, parts.data.size())));
  return layers;
}

void Synchronous::open_weights(std::size_t layer) {
  if (layers_ != nullptr) layers_->open(layer);
}

void Synchronous::close_weights(std::size_t layer) {
  if (layers_ != nullptr) layers_->close(layer);
}

StateView Synchronous::state() {
  std::vector<StateTensor> more;
  if (compression_ != nullptr) more = compression_->state();
  if (adaptive_ != nullptr) {
    for (auto& saved : adaptive_->saved()) more.push_back(std::move(saved));
  }
  const StateView::Saves saves{.common = parts_.counts_common,
                               .shards = parts_.data_across == nullptr || parts_.data_across->rank() == 0};
  return {parameters_, parts_.model, *optimizer_, held_, std::move(more), saves};
}

void Synchronous::adopt_weights() {
  if (halves_ != nullptr) halves_->forget();
  if (memory_.shared()) {
    const bool speaks = parts_.data_across != nullptr && parts_.data_in_node->rank() == 0;  // for its node
    if (speaks) broadcast_parameters(*parts_.data_across, parameters_.values());
    parts_.data.barrier().wait();   // the values are there
  } else if (layers_ == nullptr) {  // else each rank has read the same file, or drawn the same numbers
    broadcast_parameters(parts_.data, parameters_.values());
  }
  broadcast_buffers(parts_.data, parts_.model);
  tied_.exchange_values();
}

void Synchronous::adopt_optimizer() {
  optimizer_->take_over_state();
  if (adaptive_ != nullptr) adaptive_->adopt();
  parts_.data.barrier().wait();  // where the ranks of a node share it
}

void Synchronous::begin_step(int micro_batches) {
  if (halves_ != nullptr) halves_->begin_step();
  gradients_->begin_step(micro_batches);
  statistics_.begin_step();
  tied_.begin_step();
  if (totals_ != nullptr) totals_->begin_step();
}

void Synchronous::begin_compression(const StepPlan& plan) {
  if (compression_ == nullptr) return;
  compression_->begin_step(plan.number, std::max<std::int64_t>(1, plan.samples));
  if (const auto news = compression_->news(); !news.empty() && parts_.tell) parts_.tell("compression", news);
}

std::vector<MicroBatchLoss> Synchronous::compute(const StepPlan& plan, SampleSource& samples) {
  if (rows_ != nullptr) return compute_by_rows(plan, samples);
  return parts_.engine.compute(plan, samples, *this, scaler_.scale());
}

// The rows that the step uses must be current before the first micro-batch: all are read first.
std::vector<MicroBatchLoss> Synchronous::compute_by_rows(const StepPlan& plan, SampleSource& samples) {
  const auto& table = dynamic_cast<const models::WordTable&>(*parts_.model.layers().front());
  std::vector<Samples> all;
  std::vector<at::Tensor> ids;
  for (std::size_t m = 0; m < plan.micro_batches.size(); ++m) {
    all.push_back(samples.take(plan, m));
    all.back().inputs = {table.ids_read(all.back().inputs.at(0))};
    ids.push_back(all.back().inputs.front());
  }
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "make rows current");
    rows_->begin_step(ids);
  }
  GivenSamples given(std::move(all));
  return parts_.engine.compute(plan, given, *this, scaler_.scale());
}

/// Of tables that are updated by rows after the others: a rank without micro-batches has passed no gradient
/// before finish(), and all ranks must make their calls in one order.
void Synchronous::finish_gradients() {
  gradients_->finish([this] { tied_.exchange_gradients(); });
  if (rows_ == nullptr) return;
  const ScopedSpan span(parts_.sink, Phase::optimizer, "add rows up");
  rows_->finish();
}

StepOutcome Synchronous::step(const StepPlan& plan, SampleSource& samples) {
  StepOutcome outcome;
  optimizer_->close_state();
  if (plan.owned != nullptr) {
    gradients_->own(*plan.owned);
    if (layers_ != nullptr) parts_.engine.keep_weights(*layers_, most_of(*plan.owned));
  }
  begin_compression(plan);
  const bool measures = adaptive_ != nullptr && adaptive_->measures(plan.number);
  gradients_->measure_own(measures);
  const double loss_scale = scaler_.scale();
  auto losses = compute(plan, samples);
  finish_gradients();
  statistics_.exchange();
  if (late_ != nullptr) {
    step_late(plan, std::move(losses), loss_scale, outcome);
    return outcome;
  }
  StartedSquares squares;  // of a device: its results come in one copy with the losses
  if (totals_ == nullptr) squares = start_squares(gradients_->gradients(), counted_parts_);
  add_up(on_cpu(std::move(losses), squares.numbers), outcome.own);
  measure_gradient(squares, outcome.own);
  if (measures) measure_copy(outcome.own);
  agree(outcome);

  const auto& total = outcome.total;
  const bool finite = total.non_finite == 0 && std::isfinite(total.loss);
  scaler_.keep(plan.number);
  outcome.left_out = scaler_.leaves_out(finite);
  if (!finite && !outcome.left_out) {
    report_non_finite(parts_.world,
                      {parts_.model, parameters_, gradients_->gradients(), gradients_->own_parts(),
                       rows_.get(), gradients_->holds_parts()},
                      plan.number, total);
  }
  if (undo_ != nullptr) {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "keep");
    undo_->keep(plan.number);
  }
  if (adaptive_ != nullptr && finite) adaptive_->add(total, loss_scale);
  outcome.gradient_norm = std::sqrt(total.gradient_squares) / (total.weight * loss_scale);
  const double clip = optim::clip_coefficient(outcome.gradient_norm, parts_.grad_clip);
  if (!outcome.left_out) update(plan, clip / (total.weight * loss_scale));
  if (gather_ != nullptr) {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "gather");
    gather_->gather();
  } else if (gradients_->updates_parts() && layers_ == nullptr) {
    sharers(parts_).barrier().wait();  // now all parts are new
  }
  agree_on_common();
  tied_.exchange_values();
  if (!std::isfinite(total.loss)) {
    outcome.own.leave_losses_out();
    outcome.total.leave_losses_out();
  }
  return outcome;
}

void Synchronous::add_up(const std::vector<MicroBatchLoss>& losses, StepTotals& own) {
  for (const auto& [index, sums, samples] : losses) {
    own.add(sums, samples);
    if (totals_ != nullptr && parts_.counts_common) {
      totals_->add_micro_batch(static_cast<int>(index), sums.loss.item<double>(), sums.weight);
    }
  }
  own.micro_batches += static_cast<double>(losses.size());
  if (!parts_.counts_common) own.leave_samples_out();
}

void Synchronous::measure_gradient(const StartedSquares& started, StepTotals& own) const {
  const ScopedSpan span(parts_.sink, Phase::optimizer, "norm");
  if (rows_ != nullptr && parts_.counts_common) {
    const auto squares = rows_->squares();
    own.gradient_squares += squares.sum;
    own.non_finite += static_cast<double>(squares.non_finite);
  }
  if (totals_ != nullptr) {
    own.non_finite += static_cast<double>(totals_->add_gradients(gradients_->gradients()));
    return;
  }
  const auto of_parts = started.numbers.defined() ? finish_squares(started)
                                                  : squares_of(gradients_->gradients(), counted_parts_);
  for (const auto& squares : of_parts) {
    own.gradient_squares += squares.sum;
    own.non_finite += static_cast<double>(squares.non_finite);
  }
}

/// The mean gradient of this rank's samples alone.
void Synchronous::measure_copy(StepTotals& own) const {
  if (!(own.weight > 0) || !(own.samples > 0)) return;
  const double scale = own.weight * scaler_.scale();
  own.copy_squares = gradients_->own_squares() / (scale * scale);
  own.copy_inverse = 1 / own.samples;
  own.copies = 1;
}

void Synchronous::agree(StepOutcome& outcome) {
  const auto agreed = control_.agree(outcome.own, parts_.requests ? parts_.requests() : StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  if (totals_ != nullptr) totals_->complete(outcome.total);
}

void Synchronous::update(const StepPlan& plan, double scale) {
  {
    const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
    const auto number = scaler_.updates(plan.number);
    optimizer_->step(parameters_.values(), gradients_->gradients(), scale, plan.learning_rate, number,
                     gradients_->update_parts());
    if (writes_halves_) halves_->written();
    if (rows_ != nullptr) rows_->update(scale, plan.learning_rate, number);
  }
  statistics_.apply();
}

void Synchronous::agree_on_common() {
  if (common_ == nullptr) return;
  const ScopedSpan span(parts_.sink, Phase::optimizer, "agree in tensor group");
  const bool writes = !memory_.shared() || sharers(parts_).rank() == 0;
  if (layers_ != nullptr) {
    layers_->agree(*common_);
  } else {
    // Another rank of the group may have shards of layers, where this one's node shares whole parameters.
    const auto ranges = shards_ == Shards::parameters ? runs_of_layers(parts_.model, parameters_)
                                                      : std::vector<Range>{{0, parameters_.size()}};
    for (const Range& range : ranges)
      common_->agree(parameters_.values().narrow(0, range.begin, range.size()), range, writes);
  }
  if (memory_.shared()) sharers(parts_).barrier().wait();
  if (halves_ != nullptr) halves_->forget();
}

void Synchronous::synchronise() {
  if (rows_ != nullptr) rows_->flush();
}

void Synchronous::roll_back(std::int64_t number) {
  if (halves_ != nullptr) halves_->forget();
  undo_->take_back(number);
  scaler_.take_back(number);
}

void Synchronous::compare_copies(std::int64_t number) {
  synchronise();
  const auto values = layers_ == nullptr ? parameters_.values() : parameters_.values().narrow(0, 0, 0);
  require_same_copies(parts_.data, parts_.world, parts_.model, values, number);
  if (common_ != nullptr && shards_ != Shards::parameters)
    common_->require_same(parameters_.values(), parts_.world, number);
}

}  // namespace dtrain::parallel
