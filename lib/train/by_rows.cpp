#include "train/by_rows.hpp"

#include <algorithm>

#include "models/embedding_bag.hpp"
#include "train/precision.hpp"

namespace dtrain::train {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t parts) { return (n + parts - 1) / parts; }

std::int64_t tokens_of(const models::EmbeddingBag& table, const models::Shape& sample_shape) {
  return std::min(sample_shape.at(0), table.longest());
}

}  // namespace

const models::Parameter* parameter_by_rows(const RunConfig& config, models::Model& model,
                                           const models::Shape& sample_shape) {
  const auto* table = dynamic_cast<const models::EmbeddingBag*>(model.layers().front().get());
  // A pipeline's backward passes come when they come; the exchange by rows wants a step's micro-batches
  // whole, and adds them up in an order that depends on the ranks.
  if (config.mesh_shape.pipe > 1 || config.reproducible) return nullptr;
  if (config.precision == "fp16") return nullptr;   // a step that is left out has made its rows current
  if (config.computes_on_device()) return nullptr;  // its rows are updated by the CPU
  if (kernels_of(config) == models::Kernels::libtorch) return nullptr;  // whose gradient is dense
  if (table == nullptr || !parallel::RowUpdates::supports(optimizer_config(config.optimizer))) return nullptr;
  const models::Parameter& weight = table->parameters().front();
  if (weight.frozen) return nullptr;
  const auto per_sample = weight.value.size(1) + tokens_of(*table, sample_shape);
  // Reading and writing a whole table costs more than an exchange twice as long as these factors.
  const bool pays = weight.value.numel() > 2 * config.batch.global_batch * per_sample;
  return pays ? &weight : nullptr;
}

std::unique_ptr<parallel::RowUpdates> make_row_updates(const RunConfig& config, models::Model& model,
                                                       const models::Shape& sample_shape,
                                                       const parallel::FlatParameters& parameters,
                                                       const optim::Optimizer& optimizer, comm::Group& group,
                                                       parallel::RowUpdates::Copies copies) {
  const models::Parameter* parameter = parameter_by_rows(config, model, sample_shape);
  if (parameter == nullptr) return nullptr;
  const auto& table = dynamic_cast<const models::EmbeddingBag&>(*model.layers().front());
  const BatchConfig& batch = config.batch;
  const parallel::RowLimits limits{.samples = rounded_up(batch.micro_batches, group.size()) *
                                              rounded_up(batch.global_batch, batch.micro_batches),
                                   .tokens = tokens_of(table, sample_shape)};
  const auto entry =
      std::ranges::find(parameters.entries(), parameter, &parallel::FlatParameters::Entry::parameter);
  return std::make_unique<parallel::RowUpdates>(parameters, *entry, group, optimizer,
                                                optimizer_config(config.optimizer), copies, limits);
}

}  // namespace dtrain::train
