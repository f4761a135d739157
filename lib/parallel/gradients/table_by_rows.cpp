#include "parallel/gradients/table_by_rows.hpp"

#include <algorithm>

#include "parallel/gradients/row_updates.hpp"
#include "parallel/step/ownership.hpp"

namespace dtrain::parallel {
namespace {

std::int64_t quotient_rounded_up(std::int64_t n, std::int64_t parts) { return (n + parts - 1) / parts; }

}  // namespace

const models::WordTable* large_word_table(const models::Model& model, std::int64_t samples,
                                          std::int64_t sample_extent) {
  const auto* layer = dynamic_cast<const models::WordTable*>(model.layers().front().get());
  if (layer == nullptr || layer->table() == nullptr || layer->table()->frozen) return nullptr;
  const auto& table = layer->table()->value;
  // Reading and writing a whole table costs more than an exchange twice as long as these factors.
  const auto factors = samples * (table.size(1) + std::min(sample_extent, layer->longest()));
  return table.numel() > 2 * factors ? layer : nullptr;
}

std::optional<TableByRows> table_by_rows(const Setting& setting) {
  if (setting.model == nullptr) return std::nullopt;
  const auto* layer = large_word_table(*setting.model, setting.global_batch, setting.sample_extent);
  if (layer == nullptr) return std::nullopt;
  const auto tokens = std::min(setting.sample_extent, layer->longest());
  const auto owned = setting.owns_by_speed
                         ? most_owned(static_cast<int>(setting.micro_batches), setting.mesh.data)
                         : quotient_rounded_up(setting.micro_batches, setting.mesh.data);
  const RowLimits limits{.samples = owned * quotient_rounded_up(setting.global_batch, setting.micro_batches),
                         .tokens = tokens};
  return TableByRows{.layer = layer, .weight = layer->table(), .limits = limits};
}

Answer can_update_by_rows(const Setting& setting) {
  // The exchange by rows wants a step's micro-batches whole.
  if (setting.mesh.pipe > 1) return {"a pipeline's backward passes come one by one"};
  if (setting.adapts_batch) return {"the noise of its gradient is measured, and the batch of a step changes"};
  if (setting.reproducible) return {"rows are added up in an order that depends on the ranks"};
  if (setting.half == at::kHalf) return {"a step that is left out has made its rows current already"};
  if (setting.on_device) return {"rows are updated by the CPU"};
  if (!setting.own_kernels) return {"the gradient of LibTorch's operators is dense"};
  if (!RowUpdates::supports(setting.optimizer))
    return {"the update rule moves idle rows in a way that cannot be made up for"};
  return {};
}

}  // namespace dtrain::parallel
