#pragma once

#include <cstddef>
#include <span>

#include "kernels/element.hpp"

namespace dtrain::kernels {

/// SGD with momentum as PyTorch defines it (dampening 0): g = scale x gradient + weight_decay x p;
/// m = momentum x m + g; p -= learning_rate x m, or with `nesterov` learning_rate x (g + momentum x m).
struct SgdUpdate {
  double scale = 1.0;  ///< What the summed gradient is multiplied by: clip coefficient / weight of the step.
  double learning_rate = 0.0;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;  ///< Sutskever et al. 2013, in PyTorch's form.
};

/// Adam (Kingma and Ba 2015) or, with `decoupled`, AdamW (Loshchilov and Hutter 2019), in PyTorch's form:
/// p -= learning_rate / bias1 x m / (sqrt(v / bias2) + eps).
struct AdamUpdate {
  enum class Decay { coupled, decoupled };
  double scale = 1.0;
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  Decay decay = Decay::coupled;
  double bias1 = 1.0;  ///< 1 - beta1^step
  double bias2 = 1.0;  ///< 1 - beta2^step
  /// What the moments are multiplied by before: beta^steps of idle steps that they have not been through.
  double idle1 = 1.0;
  double idle2 = 1.0;
};

/// What Adam does to an element in a step in which its gradient is zero, counted from the last one in which
/// it was not: p = p x shrink - moved x m / (sqrt(v) x spread + eps), with the m and v of then.
struct AdamIdleStep {
  double moved = 0.0;   ///< learning rate x beta1^steps / bias1
  double spread = 1.0;  ///< sqrt(beta2^steps / bias2)
  double shrink = 1.0;  ///< 1 - learning rate x weight decay of AdamW
};

/// All idle steps in one pass: the parameters as if adam_update had run with zero gradients for each, to
/// rounding. The moments stay as they are, for AdamUpdate::idle1 and idle2 or for adam_fade(). Arrays [n].
template <class T>
void adam_idle(T* parameters, const T* exp_avg, const T* exp_avg_sq, std::size_t n,
               std::span<const AdamIdleStep> steps, double eps);
/// The moments [n] after idle steps, multiplied by beta^steps.
template <class T>
void adam_fade(T* exp_avg, T* exp_avg_sq, std::size_t n, double idle1, double idle2);

extern template void adam_idle<float>(float*, const float*, const float*, std::size_t,
                                      std::span<const AdamIdleStep>, double);
extern template void adam_idle<double>(double*, const double*, const double*, std::size_t,
                                       std::span<const AdamIdleStep>, double);
extern template void adam_fade<float>(float*, float*, std::size_t, double, double);
extern template void adam_fade<double>(double*, double*, std::size_t, double, double);

/// One pass over memory, gradients only read. All arrays [n], none overlapping; `momentum` may be null when
/// update.momentum is 0.
template <class T>
void sgd_update(T* parameters, const T* gradients, T* momentum, std::size_t n, const SgdUpdate& update);
template <class T>
void adam_update(T* parameters, const T* gradients, T* exp_avg, T* exp_avg_sq, std::size_t n,
                 const AdamUpdate& update);

/// out = values, rounded to the nearest, ties to even: a copy of updated parameters for products. [n] each.
void round_to_bfloat16(Bfloat16* out, const float* values, std::size_t n);

extern template void sgd_update<float>(float*, const float*, float*, std::size_t, const SgdUpdate&);
extern template void sgd_update<double>(double*, const double*, double*, std::size_t, const SgdUpdate&);
extern template void adam_update<float>(float*, const float*, float*, float*, std::size_t, const AdamUpdate&);
extern template void adam_update<double>(double*, const double*, double*, double*, std::size_t,
                                         const AdamUpdate&);

}  // namespace dtrain::kernels
