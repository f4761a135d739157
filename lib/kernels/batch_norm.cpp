#include "kernels/batch_norm.hpp"

#include <algorithm>
#include <array>

#include "kernels/lanes.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kRegisters = 4;  // vectors of channels that one walk down the rows sums
constexpr std::size_t kRows = 64;      // summed in T before they join a double: 64 roundings, then 53 bits

template <class T>
constexpr std::size_t kTile = kRegisters* Lanes<T>::kWidth;

/// The two sums over a block of rows for kTile channels (from column `c` on) or for one.
template <class T>
struct TileSums {
  std::array<T, kTile<T>> first{};
  std::array<T, kTile<T>> second{};
};

/// Adds up the two values of `term` at kTile channels over a block of rows, in registers.
template <class T, class Term>
DTRAIN_VECTOR_BODY inline void sum_tile(TileSums<T>& sums, const Term& term, std::size_t row,
                                        std::size_t rows, std::size_t c) {
  using Vector = typename Lanes<T>::Vector;
  Vector first[kRegisters] = {};
  Vector second[kRegisters] = {};
  for (std::size_t r = row; r < row + rows; ++r) {
    for (std::size_t k = 0; k < kRegisters; ++k) {
      Vector u;
      Vector v;
      term.template at<Vector>(u, v, r, c + k * Lanes<T>::kWidth);
      first[k] += u;
      second[k] += v;
    }
  }
  for (std::size_t k = 0; k < kRegisters; ++k) {
    store(&sums.first[k * Lanes<T>::kWidth], first[k]);
    store(&sums.second[k * Lanes<T>::kWidth], second[k]);
  }
}

/// The same for `width` channels below a whole tile.
template <class T, class Term>
void sum_narrow(TileSums<T>& sums, const Term& term, std::size_t row, std::size_t rows, std::size_t c,
                std::size_t width) {
  sums = {};
  for (std::size_t r = row; r < row + rows; ++r) {
    for (std::size_t k = 0; k < width; ++k) {
      T u;
      T v;
      term.template at<T>(u, v, r, c + k);
      sums.first[k] += u;
      sums.second[k] += v;
    }
  }
}

/// first[c] and second[c] += the terms of all rows, for the channels of `range`.
template <class T, class Term>
void sum_channels(double* first, double* second, const Term& term, const ChannelRows& size,
                  const ChannelRange& range) {
  with_avx2([=, &term]() DTRAIN_VECTOR_BODY {
    TileSums<T> sums;
    for (std::size_t row = 0; row < size.rows; row += kRows) {
      const std::size_t rows = std::min(kRows, size.rows - row);
      for (std::size_t c = range.begin; c < range.end; c += kTile<T>) {
        const std::size_t width = std::min(kTile<T>, range.end - c);
        if (width == kTile<T>) {
          sum_tile<T>(sums, term, row, rows, c);
        } else {
          sum_narrow<T>(sums, term, row, rows, c, width);
        }
        for (std::size_t k = 0; k < width; ++k) {
          first[c + k] += double{sums.first[k]};
          second[c + k] += double{sums.second[k]};
        }
      }
    }
  });
}

/// x - centre and its square. The centre is near the mean, so that squares of a large mean do not drown the
/// variance.
template <class S>
struct Deviation {
  const S* x;
  const Computed<S>* centre;
  std::size_t channels;
  template <class V>
  DTRAIN_VECTOR_BODY void at(V& u, V& v, std::size_t r, std::size_t c) const {
    load(u, x + r * channels + c);
    load(v, centre + c);
    u -= v;
    v = u * u;
  }
};

/// Which zeros the ReLU leaves in a gradient.
enum class Mask { none, by_output, by_input };

template <class S>
Mask mask_of(const MaskedGradient<S>& g) {
  if (g.then == Then::nothing) return Mask::none;
  return g.output != nullptr ? Mask::by_output : Mask::by_input;
}

/// g at one place, lane by lane.
template <Mask kMask, class V, class S>
DTRAIN_VECTOR_BODY inline void load_masked(V& value, const MaskedGradient<S>& g, const V& x, std::size_t i,
                                           std::size_t c) {
  load(value, g.gradient + i);
  if constexpr (kMask == Mask::by_output) {
    V output;
    load(output, g.output + i);
    value = output <= V{} ? V{} : value;
  } else if constexpr (kMask == Mask::by_input) {
    V scale, shift;
    load(scale, g.scale + c);
    load(shift, g.shift + c);
    const V before = x * scale + shift;
    value = before <= V{} ? V{} : value;
  }
}

/// g and g (x - mean).
template <class S, Mask kMask>
struct GradientTerm {
  MaskedGradient<S> g;
  const Computed<S>* mean;
  std::size_t channels;
  template <class V>
  DTRAIN_VECTOR_BODY void at(V& u, V& v, std::size_t r, std::size_t c) const {
    const std::size_t i = r * channels + c;
    V x, centre;
    load(x, g.x + i);
    load(centre, mean + c);
    load_masked<kMask>(u, g, x, i, c);
    v = u * (x - centre);
  }
};

/// Calls `at(row, channel, lanes)` for all places, as many neighbours at a time as a vector has lanes, and
/// those that are left of a row one by one; `lanes`: a null pointer of the type that holds them.
template <class T, class At>
void over_places(const ChannelRows& size, const At& at) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    constexpr std::size_t kWidth = Lanes<T>::kWidth;
    for (std::size_t row = 0; row < size.rows; ++row) {
      std::size_t channel = 0;
      for (; channel + kWidth <= size.channels; channel += kWidth) {
        at(row, channel, static_cast<const typename Lanes<T>::Vector*>(nullptr));
      }
      for (; channel < size.channels; ++channel) at(row, channel, static_cast<const T*>(nullptr));
    }
  });
}

template <bool kAdds, bool kRectifies, class S>
void write_scaled(const ChannelScaling<S>& what, const ChannelRows& size) {
  S* const y = what.y;
  const S* const x = what.x;
  const S* const residual = what.residual;
  const Computed<S>* const scales = what.scale;
  const Computed<S>* const shifts = what.shift;
  const std::size_t channels = size.channels;
  over_places<Computed<S>>(size,
                           [=]<class V>(std::size_t row, std::size_t channel, const V*) DTRAIN_VECTOR_BODY {
                             const std::size_t i = row * channels + channel;
                             V value, scale, added;
                             load(value, x + i);
                             load(scale, scales + channel);
                             load(added, shifts + channel);
                             value = value * scale + added;
                             if constexpr (kAdds) {
                               load(added, residual + i);
                               value += added;
                             }
                             if constexpr (kRectifies) value = value < V{} ? V{} : value;
                             store(y + i, value);
                           });
}

template <Mask kMask, class S>
void write_gradient(S* dx, S* masked, const MaskedGradient<S>& g, const Computed<S>* a, const Computed<S>* b,
                    const Computed<S>* c, const ChannelRows& size) {
  over_places<Computed<S>>(size,
                           [=]<class V>(std::size_t row, std::size_t channel, const V*) DTRAIN_VECTOR_BODY {
                             const std::size_t i = row * size.channels + channel;
                             V x, value, by_gradient, by_x, constant;
                             load(x, g.x + i);
                             load(by_gradient, a + channel);
                             load(by_x, b + channel);
                             load(constant, c + channel);
                             load_masked<kMask>(value, g, x, i, channel);
                             if (masked != nullptr) store(masked + i, value);
                             store(dx + i, value * by_gradient + (x * by_x + constant));
                           });
}

}  // namespace

template <class S>
void channel_moments(double* mean, double* variance, const S* x, const ChannelRows& size,
                     const ChannelRange& range) {
  using T = Computed<S>;
  std::fill(mean + range.begin, mean + range.end, 0.0);
  std::fill(variance + range.begin, variance + range.end, 0.0);
  if (size.rows == 0) return;
  std::array<T, 1024> centre_of_some{};
  for (std::size_t begin = range.begin; begin < range.end; begin += centre_of_some.size()) {
    const std::size_t end = std::min(begin + centre_of_some.size(), range.end);
    // The mean of a few rows, spread over all of them, is a centre good enough.
    const std::size_t probes = std::min<std::size_t>(16, size.rows);
    for (std::size_t c = begin; c < end; ++c) {
      double sum = 0.0;
      for (std::size_t p = 0; p < probes; ++p) {
        T value;
        load(value, x + p * size.rows / probes * size.channels + c);
        sum += double{value};
      }
      centre_of_some[c - begin] = static_cast<T>(sum / static_cast<double>(probes));
    }
    const Deviation<S> term{x + begin, centre_of_some.data(), size.channels};
    sum_channels<T>(mean + begin, variance + begin, term, size, {0, end - begin});
    const auto rows = static_cast<double>(size.rows);
    for (std::size_t c = begin; c < end; ++c) {
      const double offset = mean[c] / rows;
      variance[c] = std::max(variance[c] / rows - offset * offset, 0.0);
      mean[c] = double{centre_of_some[c - begin]} + offset;
    }
  }
}

template <class S>
void scale_channels(const ChannelScaling<S>& what, const ChannelRows& size) {
  const bool rectifies = what.then == Then::relu;
  if (what.residual != nullptr) {
    return rectifies ? write_scaled<true, true>(what, size) : write_scaled<true, false>(what, size);
  }
  return rectifies ? write_scaled<false, true>(what, size) : write_scaled<false, false>(what, size);
}

template <class S>
void channel_gradient_sums(double* sum, double* product_sum, const MaskedGradient<S>& g,
                           const Computed<S>* mean, const ChannelRows& size, const ChannelRange& range) {
  using T = Computed<S>;
  std::fill(sum + range.begin, sum + range.end, 0.0);
  std::fill(product_sum + range.begin, product_sum + range.end, 0.0);
  const std::size_t channels = size.channels;
  switch (mask_of(g)) {
    case Mask::none:
      return sum_channels<T>(sum, product_sum, GradientTerm<S, Mask::none>{g, mean, channels}, size, range);
    case Mask::by_output:
      return sum_channels<T>(sum, product_sum, GradientTerm<S, Mask::by_output>{g, mean, channels}, size,
                             range);
    case Mask::by_input:
      return sum_channels<T>(sum, product_sum, GradientTerm<S, Mask::by_input>{g, mean, channels}, size,
                             range);
  }
}

template <class S>
void channel_gradient(S* dx, S* masked, const MaskedGradient<S>& g, const Computed<S>* a,
                      const Computed<S>* b, const Computed<S>* c, const ChannelRows& size) {
  switch (mask_of(g)) {
    case Mask::none:
      return write_gradient<Mask::none>(dx, masked, g, a, b, c, size);
    case Mask::by_output:
      return write_gradient<Mask::by_output>(dx, masked, g, a, b, c, size);
    case Mask::by_input:
      return write_gradient<Mask::by_input>(dx, masked, g, a, b, c, size);
  }
}

#define DTRAIN_DEFINE_BATCH_NORM(S)                                                                      \
  template void channel_moments<S>(double*, double*, const S*, const ChannelRows&, const ChannelRange&); \
  template void scale_channels<S>(const ChannelScaling<S>&, const ChannelRows&);                         \
  template void channel_gradient_sums<S>(double*, double*, const MaskedGradient<S>&, const Computed<S>*, \
                                         const ChannelRows&, const ChannelRange&);                       \
  template void channel_gradient<S>(S*, S*, const MaskedGradient<S>&, const Computed<S>*,                \
                                    const Computed<S>*, const Computed<S>*, const ChannelRows&);
DTRAIN_DEFINE_BATCH_NORM(float)
DTRAIN_DEFINE_BATCH_NORM(double)
DTRAIN_DEFINE_BATCH_NORM(Bfloat16)
#undef DTRAIN_DEFINE_BATCH_NORM

}  // namespace dtrain::kernels
