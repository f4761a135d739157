#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// A copy of all parameters in half precision, laid out as they are: what products read
/// (models::product_weight), made once for all micro-batches of a step instead of at each use. While it lives
/// each Parameter::half is its part.
class HalfWeights {
 public:
  /// `parameters` must be held whole, and outlive this. `values`: [parameters.size()] of kBFloat16 or kHalf,
  /// which may be memory that ranks with the same parameters share.
  HalfWeights(FlatParameters& parameters, at::Tensor values);
  ~HalfWeights();
  HalfWeights(const HalfWeights&) = delete;
  HalfWeights& operator=(const HalfWeights&) = delete;

  at::Tensor& values() { return values_; }  ///< [parameters.size()]

  /// Brings the copy up to date, unless written() was called and the parameters are as they were then.
  void begin_step();
  /// Something else has written the parameters: what written() said holds no longer.
  void forget() { written_at_.reset(); }
  /// An optimizer has just written both the parameters and this copy.
  void written() { written_at_ = parameters_.values()._version(); }

 private:
  FlatParameters& parameters_;
  at::Tensor values_;
  std::optional<std::int64_t> written_at_;  ///< The parameters' version then.
};

}  // namespace dtrain::parallel
