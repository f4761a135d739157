#include "models/compute/step_memory.hpp"

#include <ATen/ops/cat.h>

namespace dtrain::models {

bool StepMemory::holds_back(std::int64_t elements, std::int64_t weight_elements, Otherwise otherwise) {
  if (decision_ == Decision::open) {
    const bool fits = otherwise == Otherwise::nothing && elements * micro_batches_ <= weight_elements;
    decision_ = fits ? Decision::at_the_end : Decision::each_time;
  }
  return decision_ == Decision::at_the_end;
}

bool StepMemory::add(const at::Tensor& input, const at::Tensor& output_gradient) {
  inputs_.push_back(input);
  output_gradients_.push_back(output_gradient);
  return static_cast<int>(inputs_.size()) == micro_batches_;
}

at::Tensor StepMemory::inputs() const { return at::cat(inputs_); }

at::Tensor StepMemory::output_gradients() const { return at::cat(output_gradients_); }

}  // namespace dtrain::models
