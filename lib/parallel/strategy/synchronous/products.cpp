#include "parallel/strategy/synchronous/products.hpp"

namespace dtrain::parallel {

std::unique_ptr<ProductSums> product_sums(const StrategyParts& parts, FlatParameters& parameters,
                                          bool shared) {
  const bool one_copy = (shared || parts.data.size() == 1) && parts.data_across == nullptr;
  if (!one_copy) return nullptr;
  const auto products = trained_products(parts.model);
  if (products.empty()) return nullptr;
  const LargestStep step{parts.setting.global_batch, static_cast<int>(parts.setting.micro_batches)};
  const bool wanted = parts.engine.runs_layers() && ProductSums::pays(products, step);
  return ProductSums::make(parameters, products, parts.data, step, parts.sink, wanted);
}

}  // namespace dtrain::parallel
