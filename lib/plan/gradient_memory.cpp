#include "plan/gradient_memory.hpp"

#include <algorithm>

#include "models/networks/direct_network.hpp"
#include "parallel/gradients/product_sums.hpp"
#include "parallel/gradients/table_by_rows.hpp"

namespace dtrain::plan {

int micro_batches_of_rank(const Footprint& footprint) {
  return std::max(1, (footprint.micro_batches + footprint.copies - 1) / footprint.copies);
}

double factor_elements(const Footprint& footprint, const models::Model& model) {
  if (!footprint.makes_products) return 0;
  const parallel::LargestStep step{std::int64_t{footprint.micro_batches} * footprint.largest_piece,
                                   footprint.micro_batches};
  const auto products = parallel::trained_products(model);
  return static_cast<double>(parallel::ProductSums::factor_elements(products, step)) / footprint.copies;
}

GradientsBeside::GradientsBeside(const Footprint& footprint, const models::Model& model)
    : element_(footprint.element_bytes),
      converts_(footprint.half && footprint.kernels != models::Kernels::fused),
      own_kernels_(footprint.computed() == parallel::Computed::by_own_kernels),
      micro_batches_(micro_batches_of_rank(footprint)),
      adds_up_((micro_batches_ > 1 && !footprint.reproducible) ||
               footprint.kernels == models::Kernels::libtorch),
      holds_back_(micro_batches_ > 1 && own_kernels_ && !footprint.reproducible &&
                  footprint.gradient_shards == 1),
      none_(factor_elements(footprint, model) > 0) {}

double GradientsBeside::at_once(const models::Cost& cost, double largest) const {
  constexpr double kHalf = 2;
  double beside = own_kernels_ ? in_bytes(cost.workspace_bytes) : 0;
  if (element_ == sizeof(double)) beside = std::max(beside, in_bytes(cost.columns_bytes));
  if (none_) return beside;
  const double kept = held_back(cost);
  if (kept > 0) return beside + kept;  // all micro-batches' in one piece
  const double least = in_bytes(cost.gradient_bytes);
  if (adds_up_) return beside + std::max(least, largest * element_);
  const bool converts = converts_ && cost.products != models::Cost::Products::none;
  return beside + std::max(least, converts ? largest * kHalf : 0);
}

double GradientsBeside::held_back(const models::Cost& cost) const {
  double sum = 0;
  for (const auto& [elements, weight] : cost.factors) {
    const double kept = elements * micro_batches_;
    if (holds_back_ && kept <= weight) sum += kept * element_;
  }
  return sum;
}

double GradientsBeside::in_bytes(double of_floats) const { return of_floats / sizeof(float) * element_; }

double gradient_of_rows(const Footprint& footprint, const models::Model& model,
                        const models::Shape& sample_shape) {
  if (!footprint.updates_by_rows) return 0;
  const auto extent = sample_shape.empty() ? 1 : sample_shape[0];
  const auto samples = std::int64_t{footprint.micro_batches} * footprint.largest_piece;
  const auto* layer = parallel::large_word_table(model, samples, extent);
  if (layer == nullptr) return 0;
  const auto& table = layer->table()->value;
  const auto tokens = std::min(extent, layer->longest());
  const auto rows = std::min(table.size(0), samples * tokens / 2);  // met twice or more
  return static_cast<double>(rows * table.size(1)) / footprint.block_ranks;
}

bool computes_directly(const Footprint& footprint, const models::Model& model) {
  if (footprint.tensor > 1 || footprint.half || footprint.reproducible ||
      footprint.kernels != models::Kernels::own)
    return false;
  const auto network = models::DirectNetwork::of(model);
  return network != nullptr &&
         network->fits(footprint.largest_piece, static_cast<std::size_t>(micro_batches_of_rank(footprint)));
}

}  // namespace dtrain::plan
