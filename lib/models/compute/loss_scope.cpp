#include "models/compute/loss_scope.hpp"

#include <utility>

#include "models/model.hpp"

namespace dtrain::models {
namespace {

thread_local bool takes = false;  // as KernelScope's

}  // namespace

LossScope::LossScope(bool takes_factors) : before_(std::exchange(takes, takes_factors)) {}

LossScope::~LossScope() { takes = before_; }

bool loss_may_take_factors(Kernels kernels, std::optional<c10::ScalarType> half, const TrainingLoss& how) {
  return kernels == Kernels::fused && half != c10::kHalf && how.plain();
}

bool loss_takes_factors() { return takes && fused_kernels_are_on(); }

}  // namespace dtrain::models
