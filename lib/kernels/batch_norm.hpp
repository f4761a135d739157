#pragma once

#include <cstddef>

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

/// Mean and variance (over rows, not rows - 1) of each channel of `range`; both outputs [channels].
template <class T>
void channel_moments(double* mean, double* variance, const T* x, const ChannelRows& size,
                     const ChannelRange& range);

/// y = x scale + shift, plus `residual` unless null, then the ReLU. `scale` and `shift` [channels]; the
/// others [rows, channels]. A NaN stays one.
template <class T>
struct ChannelScaling {
  T* y = nullptr;
  const T* x = nullptr;
  const T* residual = nullptr;
  const T* scale = nullptr;
  const T* shift = nullptr;
  Then then = Then::nothing;
};
template <class T>
void scale_channels(const ChannelScaling<T>& what, const ChannelRows& size);

/// The gradient that reaches the normalisation: `gradient`, or 0 where the ReLU behind it gave 0. That is
/// seen from the ReLU's `output` or, where that is null, from x scale + shift computed again.
template <class T>
struct MaskedGradient {
  const T* gradient = nullptr;
  const T* x = nullptr;
  const T* output = nullptr;
  const T* scale = nullptr;
  const T* shift = nullptr;
  Then then = Then::nothing;
};

/// Sums over the rows of g and of g (x - mean), g being the masked gradient; outputs and `mean` [channels].
template <class T>
void channel_gradient_sums(double* sum, double* product_sum, const MaskedGradient<T>& g, const T* mean,
                           const ChannelRows& size, const ChannelRange& range);

/// `dx` = g a + x b + c with [channels] of each factor; also g itself into `masked` unless that is null.
template <class T>
void channel_gradient(T* dx, T* masked, const MaskedGradient<T>& g, const T* a, const T* b, const T* c,
                      const ChannelRows& size);

#define DTRAIN_DECLARE_BATCH_NORM(T)                                                                       \
  extern template void channel_moments<T>(double*, double*, const T*, const ChannelRows&,                  \
                                          const ChannelRange&);                                            \
  extern template void scale_channels<T>(const ChannelScaling<T>&, const ChannelRows&);                    \
  extern template void channel_gradient_sums<T>(double*, double*, const MaskedGradient<T>&, const T*,      \
                                                const ChannelRows&, const ChannelRange&);                  \
  extern template void channel_gradient<T>(T*, T*, const MaskedGradient<T>&, const T*, const T*, const T*, \
                                           const ChannelRows&);
DTRAIN_DECLARE_BATCH_NORM(float)
DTRAIN_DECLARE_BATCH_NORM(double)
#undef DTRAIN_DECLARE_BATCH_NORM

}  // namespace dtrain::kernels
