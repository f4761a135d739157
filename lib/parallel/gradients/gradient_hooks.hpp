#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "models/model.hpp"

namespace dtrain::parallel {

/// Tells when a parameter's gradient of a backward pass is complete, for as long as it lives. Afterwards no
/// .grad is left, since it may lie in memory that is about to go.
class GradientHooks {
 public:
  /// Gets the place of the parameter among `parameters`, on the thread that called backward.
  using Complete = std::function<void(std::size_t index)>;

  /// The parameters are borrowed, and keep their tensors meanwhile.
  GradientHooks(std::vector<models::Parameter*> parameters, Complete complete);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  class Hook;
  std::vector<models::Parameter*> parameters_;
  Complete complete_;
};

}  // namespace dtrain::parallel
