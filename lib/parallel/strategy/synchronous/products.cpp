#include "parallel/strategy/synchronous/products.hpp"

namespace dtrain::parallel {

std::unique_ptr<ProductSums> product_sums(const StrategyParts& parts, FlatParameters& parameters,
                                          bool shared) {
  const Setting& setting = parts.setting;
  const bool one_copy = (shared || parts.data.size() == 1) && parts.data_across == nullptr;
  const bool one_stage = parts.pipe.size() == 1 && parts.tensor.size() == 1;
  if (!one_copy || !one_stage) return nullptr;
  const bool in_full = !setting.half && setting.own_kernels && !setting.on_device;
  const bool as_is_fastest =
      parts.buckets.bucket_bytes == 0 && parts.buckets.algorithm == comm::Algorithm::automatic;
  const bool sums = setting.sums_each_step || setting.adapts_batch || setting.optimizer.codes_state();
  if (!in_full || !as_is_fastest || sums) return nullptr;
  const auto products = trained_products(parts.model);
  if (products.empty()) return nullptr;
  const LargestStep step{setting.global_batch, static_cast<int>(setting.micro_batches)};
  const bool wanted = parts.engine.runs_layers() && ProductSums::pays(products, step);
  return ProductSums::make(parameters, products, parts.data, step, parts.sink, wanted);
}

}  // namespace dtrain::parallel
