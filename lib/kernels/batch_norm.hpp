#pragma once

#include <cstddef>

#include "kernels/element.hpp"

namespace dtrain::kernels {

/// Extents of values laid out [rows, channels]: images with their channels last, rows = N x H x W.
struct ChannelRows {
  std::size_t rows = 0;
  std::size_t channels = 0;
};

/// A run of channels, so that threads can share a reduction without changing a sum.
struct ChannelRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// What follows a normalisation in the same pass over memory.
enum class Then { nothing, relu };

// S: float, double, or Bfloat16, of which each number is computed with as a float and rounded when it is
// stored.

/// Mean and variance (over rows, not rows - 1) of each channel of `range`; both outputs [channels].
template <class S>
void channel_moments(double* mean, double* variance, const S* x, const ChannelRows& size,
                     const ChannelRange& range);

/// y = x scale + shift, plus `residual` unless null, then the ReLU. `scale` and `shift` [channels]; the
/// others [rows, channels]. A NaN stays one.
template <class S>
struct ChannelScaling {
  S* y = nullptr;
  const S* x = nullptr;
  const S* residual = nullptr;
  const Computed<S>* scale = nullptr;
  const Computed<S>* shift = nullptr;
  Then then = Then::nothing;
};
template <class S>
void scale_channels(const ChannelScaling<S>& what, const ChannelRows& size);

/// The gradient that reaches the normalisation: `gradient`, or 0 where the ReLU behind it gave 0. That is
/// seen from the ReLU's `output` or, where that is null, from x scale + shift computed again.
template <class S>
struct MaskedGradient {
  const S* gradient = nullptr;
  const S* x = nullptr;
  const S* output = nullptr;
  const Computed<S>* scale = nullptr;
  const Computed<S>* shift = nullptr;
  Then then = Then::nothing;
};

/// Sums over the rows of g and of g (x - mean), g being the masked gradient; outputs and `mean` [channels].
template <class S>
void channel_gradient_sums(double* sum, double* product_sum, const MaskedGradient<S>& g,
                           const Computed<S>* mean, const ChannelRows& size, const ChannelRange& range);

/// `dx` = g a + x b + c with [channels] of each factor; also g itself into `masked` unless that is null.
template <class S>
void channel_gradient(S* dx, S* masked, const MaskedGradient<S>& g, const Computed<S>* a,
                      const Computed<S>* b, const Computed<S>* c, const ChannelRows& size);

#define DTRAIN_DECLARE_BATCH_NORM(S)                                                             \
  extern template void channel_moments<S>(double*, double*, const S*, const ChannelRows&,        \
                                          const ChannelRange&);                                  \
  extern template void scale_channels<S>(const ChannelScaling<S>&, const ChannelRows&);          \
  extern template void channel_gradient_sums<S>(double*, double*, const MaskedGradient<S>&,      \
                                                const Computed<S>*, const ChannelRows&,          \
                                                const ChannelRange&);                            \
  extern template void channel_gradient<S>(S*, S*, const MaskedGradient<S>&, const Computed<S>*, \
                                           const Computed<S>*, const Computed<S>*, const ChannelRows&);
DTRAIN_DECLARE_BATCH_NORM(float)
DTRAIN_DECLARE_BATCH_NORM(double)
DTRAIN_DECLARE_BATCH_NORM(Bfloat16)
#undef DTRAIN_DECLARE_BATCH_NORM

}  // namespace dtrain::kernels
