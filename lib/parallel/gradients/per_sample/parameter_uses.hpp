#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/compute/sample_tap.hpp"
#include "parallel/gradients/per_sample/clipped_sum.hpp"

namespace dtrain::parallel {

/// The gradients of each sample, of all parameters whose uses a SampleTap has taken down. A parameter may be
/// used several times (steps of an LSTM, tied weights): a sample's gradient is the sum over its uses, and its
/// norm is that of the sum.
///
/// Products and lookups are sums over rows of outer products, whose norm follows from the products of all
/// pairs of rows, without the gradient (ghost norms: Li et al., ICLR 2022; of tied weights: Bu et al., "On
/// the Accuracy and Computational Efficiency of Differentially Private Bias-Term Fine-Tuning" and "Automatic
/// Clipping", 2023). Where the gradient of each sample costs less and there is memory, it is computed and
/// kept instead.
class ParameterUses {
 public:
  // Elements of gradients by sample, over all parameters, and of a product over pairs of rows, which is to
  // lie in the cache.
  static constexpr std::int64_t kMostKept = 1 << 25;
  static constexpr std::int64_t kMostAtOnce = 1 << 18;

  /// After backward, of a micro-batch of `samples`. Throws Error where a layer has written to what it was
  /// given to multiply.
  ParameterUses(const std::vector<std::shared_ptr<models::ParameterUse>>& uses, std::int64_t samples);
  ~ParameterUses();
  ParameterUses(ParameterUses&&) noexcept;
  ParameterUses& operator=(ParameterUses&&) noexcept;

  /// Whether a use of the parameter was taken down.
  bool has(const models::Parameter* parameter) const;

  /// Adds to `squares`, double [n], the squared norm of each sample's gradients.
  void add_squares(at::Tensor& squares);

  /// Adds the gradients, sample i times factors[i], [n].
  void add_to(ClippedSum& sum, const at::Tensor& factors) const;

 private:
  class OfOne;
  std::vector<std::unique_ptr<OfOne>> all_;
  std::int64_t kept_ = 0;  // elements of gradients by sample
};

}  // namespace dtrain::parallel
