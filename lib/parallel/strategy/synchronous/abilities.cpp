// What the strategies that make one step together can do, and with what.
#include <memory>

#include "parallel/gradients/table_by_rows.hpp"
#include "parallel/strategy/private/private_steps.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

Answer can_replay_graphs(const Setting& setting) {
  if (!setting.on_device) return {"the CPU computes"};
  if (!setting.no_device_graphs.empty()) return {setting.no_device_graphs};
  if (setting.mesh.pipe > 1) return {"ranks of a pipeline wait for each other within a step"};
  if (setting.mesh.tensor > 1) return {"ranks of the tensor axis wait for each other within a layer"};
  if (!setting.samples_alike) return {"samples have different shapes"};
  if (setting.reproducible) return {"the gradients of micro-batches are kept apart"};
  if (setting.class_weights) return {"a step's weight depends on its samples' classes"};
  if (setting.injects_faults) return {"faults are injected"};
  return {};
}

Answer can_roll_back(const Setting& setting, bool updates_by_rows) {
  if (!setting.recovers) return {"the run ends where a rank is lost"};
  if (updates_by_rows) return {"a step changes rows of a table ahead of its update"};
  if (setting.on_device) return {"the state is in the memory of a device"};
  if (setting.adapts_batch)
    return {"a step may take several batches, and the next one's number is not known"};
  return {};
}

Answer can_adapt_batch(const Setting& setting) {
  if (setting.mesh.pipe > 1 || setting.mesh.tensor > 1)
    return {"each rank must know the whole gradient of its copy"};
  if (setting.reproducible) return {"the measured noise depends on the number of ranks"};
  if (setting.on_device) return {"the CPU measures the noise of gradients"};
  return {};
}

Answer can_own_by_speed(const Setting& setting) {
  if (setting.adapts_batch) return {"the batch of a step changes with --adaptive-batch"};
  if (setting.on_device)
    return {"what a micro-batch takes on a device is not known when the next step begins"};
  return {};
}

Answer can_make_products(const Setting& setting) {
  if (setting.mesh.pipe > 1 || setting.mesh.tensor > 1) return {"a rank has a part of the layers"};
  if (setting.half || !setting.own_kernels || setting.on_device)
    return {"dtrain's kernels for small products are the CPU's, in full precision"};
  if (setting.reproducible) return {"the gradients of micro-batches are kept apart"};
  if (setting.adapts_batch) return {"the noise of each copy's gradient is measured"};
  if (setting.says_how_to_sum) return {"the user says how gradients are summed"};
  return {};
}

/// What shards of the state change in what copies of it can do.
void restrict_to_shards(const Setting& setting, Synchronous::Shards shards, Abilities& abilities) {
  if (setting.on_device) abilities.runs = {"shards are gathered in the CPU's memory"};
  abilities.updates_by_rows = {"each rank has a shard of the table's state only"};
  abilities.rolls_back = {"a lost rank takes its shard along"};
  abilities.copies_parts = {"a rank's part is not the same on all copies of the model"};
  if (shards < Synchronous::Shards::gradients) return;
  abilities.makes_products = {"gradients go to the ranks of their shards"};
  if (abilities.adapts_batch) abilities.adapts_batch = {"no rank keeps the gradient of its copy"};
}

/// Where our kernels take such a copy for a product's factor.
bool keeps_halves(const Setting& setting) {
  return setting.half && (setting.fused_kernels || (setting.own_kernels && !setting.on_device));
}

/// What changes where gradients leave a rest that each node keeps for itself.
void restrict_to_kept_error(Abilities& abilities) {
  abilities.rolls_back = {"a lost rank takes along what its node has not sent yet"};
  abilities.copies_parts = {"a rank's part is not the same on all nodes"};
}

/// What changes where each rank has state in 8 bits for itself.
void restrict_to_codes(const Setting& setting, Abilities& abilities) {
  if (setting.on_device) abilities.runs = {"the CPU keeps the optimizer's state in 8 bits"};
  abilities.updates_by_rows = {"values of a table share the scale of their state"};
  abilities.makes_products = {"values of a weight share the scale of their state"};
  abilities.rolls_back = {"a lost rank takes its state in 8 bits along"};
  abilities.copies_parts = {"no rank can read another one's state in 8 bits"};
}

/// What it keeps of the gradient.
int blocks_of_compression(const StrategyOptions& options) {
  return CompressionChoice::parse(options.compression).keeps_error() ? 1 : 0;
}

}  // namespace

StrategyEntry synchronous() {
  return {.name = "ddp",
          .rule = "all copies apply the same sum of gradients in each step",
          .options = {"compression", "compression-after", "dp-clip", "dp-noise", "target-epsilon", "dp-delta",
                      "dp-sampler", "dp-accountant", "noise-source", "optimizer-state-bits", "offload"},
          .blocks = blocks_of_compression,
          .shares = {.node = true},
          .can =
              [](const Setting& setting) {
                return setting.options.dp_clip > 0 ? PrivateSteps::can(setting) : Synchronous::can(setting);
              },
          .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
            if (parts.setting.options.dp_clip > 0) return std::make_unique<PrivateSteps>(parts);
            return std::make_unique<Synchronous>(parts);
          }};
}

StrategyEntry zero1() {
  return {
      .name = "zero1",
      .rule = "as ddp, each copy holding and updating a shard of the optimizer's state",
      .steps_of = "ddp",
      .options = {"compression", "compression-after", "shard-within", "optimizer-state-bits"},
      .blocks = blocks_of_compression,
      .shares = {.node = true, .optimizer = true},
      .can = [](const Setting& setting) { return Synchronous::can(setting, Synchronous::Shards::optimizer); },
      .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
        return std::make_unique<Synchronous>(parts, Synchronous::Shards::optimizer);
      }};
}

StrategyEntry zero2() {
  return {
      .name = "zero2",
      .rule = "as zero1, each copy keeping the gradient sums of its shard only",
      .steps_of = "ddp",
      .options = {"compression", "compression-after", "shard-within", "optimizer-state-bits"},
      .shares = {.node = true, .optimizer = true, .gradients = true},
      .can = [](const Setting& setting) { return Synchronous::can(setting, Synchronous::Shards::gradients); },
      .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
        return std::make_unique<Synchronous>(parts, Synchronous::Shards::gradients);
      }};
}

StrategyEntry zero3() {
  return {
      .name = "zero3",
      .rule = "as zero2, each copy keeping its shard of the parameters only, but for the layer that computes",
      .steps_of = "ddp",
      .options = {"compression", "compression-after", "shard-within", "optimizer-state-bits"},
      .shares = {.node = true, .optimizer = true, .gradients = true, .parameters = true},
      .can =
          [](const Setting& setting) { return Synchronous::can(setting, Synchronous::Shards::parameters); },
      .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
        return std::make_unique<Synchronous>(parts, Synchronous::Shards::parameters);
      }};
}

Abilities Synchronous::can(const Setting& setting, Shards shards) {
  const auto updates_by_rows = can_update_by_rows(setting);
  Abilities abilities{.runs = {},
                      .replays_graphs = can_replay_graphs(setting),
                      .updates_by_rows = updates_by_rows,
                      .rolls_back = can_roll_back(setting, updates_by_rows && table_by_rows(setting)),
                      .copies_parts = {},
                      .same_bits = {},
                      .makes_products = can_make_products(setting),
                      .adapts_batch = can_adapt_batch(setting),
                      .owns_by_speed = can_own_by_speed(setting),
                      .keeps_halves = keeps_halves(setting)};
  if (shards != Shards::nothing) restrict_to_shards(setting, shards, abilities);
  if (setting.optimizer.codes_state()) restrict_to_codes(setting, abilities);
  if (CompressionChoice::parse(setting.options.compression).keeps_error()) restrict_to_kept_error(abilities);
  return abilities;
}

}  // namespace dtrain::parallel
