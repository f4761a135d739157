#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/element.hpp"

namespace dtrain::kernels {

// What the fused kernels do with one element: the same code on the CPU and on a GPU.

/// The logarithm of a sum of exponentials, one number after the other, in float. Source: Milakov and
/// Gimelshein, "Online normalizer calculation for softmax", 2018.
struct LogSum {
  float largest = -INFINITY;
  float sum = 0.0F;  ///< Of exp(x - largest).

  DTRAIN_HOST_DEVICE void add(float x) {
    if (x > largest) {
      sum = sum * expf(largest - x) + 1.0F;
      largest = x;
    } else if (x != -INFINITY) {
      sum += expf(x - largest);
    }
  }
  DTRAIN_HOST_DEVICE void join(const LogSum& other) {
    if (other.sum == 0.0F) return;
    if (sum == 0.0F) {
      *this = other;
    } else if (other.largest > largest) {
      sum = sum * expf(largest - other.largest) + other.sum;
      largest = other.largest;
    } else {
      sum += other.sum * expf(other.largest - largest);
    }
  }
  DTRAIN_HOST_DEVICE float value() const { return largest + logf(sum); }
};

/// `share`: the word's part of the softmax, exp(logit - log sum exp).
DTRAIN_HOST_DEVICE inline float token_loss_gradient_of(float share, bool is_target, float factor) {
  return (share - (is_target ? 1.0F : 0.0F)) * factor;
}

DTRAIN_HOST_DEVICE inline float normed_of(float x, float mean, float deviation, float weight, float bias) {
  return (x - mean) * deviation * weight + bias;
}

/// The gradient of x, where `scaled` is that of the normed x (times its weight), and the means are those over
/// the row of `scaled` and of `scaled` times the normed x.
DTRAIN_HOST_DEVICE inline float norm_gradient_of(float scaled, float unit, float mean_scaled,
                                                 float mean_product, float deviation) {
  return (scaled - mean_scaled - unit * mean_product) * deviation;
}

/// A channel's batch normalisation as y = x scale + shift. Source: Ioffe and Szegedy, "Batch Normalization",
/// ICML 2015.
struct ChannelScale {
  double inverse_deviation;
  float scale;
  float shift;
};

DTRAIN_HOST_DEVICE inline ChannelScale channel_scale_of(double mean, double variance, double epsilon,
                                                        float weight, float bias) {
  const double inverse = 1.0 / sqrt(variance + epsilon);
  const double scale = static_cast<double>(weight) * inverse;
  return {inverse, static_cast<float>(scale), static_cast<float>(static_cast<double>(bias) - mean * scale)};
}

/// Through the normalisation, the residual (0: none) and, where wanted, the ReLU; a NaN stays one.
DTRAIN_HOST_DEVICE inline float scaled_of(float x, float scale, float shift, float residual, bool relu) {
  const float y = x * scale + shift + residual;
  return relu && y < 0.0F ? 0.0F : y;
}

/// The gradient behind a ReLU that gave `y`.
DTRAIN_HOST_DEVICE inline float masked_of(float gradient, float y, bool relu) {
  return relu && y <= 0.0F ? 0.0F : gradient;
}

/// The gradient of x is g a + x b + c, g being the masked gradient.
struct ChannelFactors {
  float a;
  float b;
  float c;
};

/// `sum` and `product_sum`: over the rows, of g and of g (x - mean).
DTRAIN_HOST_DEVICE inline ChannelFactors channel_factors_of(double sum, double product_sum, double rows,
                                                            float weight, double mean,
                                                            double inverse_deviation) {
  const double a = static_cast<double>(weight) * inverse_deviation;
  const double b = -a * inverse_deviation * inverse_deviation * product_sum / rows;
  return {static_cast<float>(a), static_cast<float>(b), static_cast<float>(-a * sum / rows - b * mean)};
}

/// Of a window's upper (a, b) and lower (x, y) pixels, 0 to 3: the first of equals; a NaN wins.
DTRAIN_HOST_DEVICE inline std::uint8_t place_of_largest(float a, float b, float x, float y) {
  // !(value <= best) also holds for a NaN value; a NaN that is the best so far stays.
  const bool right = a == a && !(b <= a);
  const float above = right ? b : a;
  const bool below_right = x == x && !(y <= x);
  const float below = below_right ? y : x;
  const bool down = above == above && !(below <= above);
  return static_cast<std::uint8_t>(down ? 2 + (below_right ? 1 : 0) : (right ? 1 : 0));
}

/// Near the mean of a channel, so that squares of a large mean do not drown the variance: of some rows,
/// spread over all. `x`: the channel's first element.
template <class T>
DTRAIN_HOST_DEVICE double channel_centre(const T* x, std::size_t rows, std::size_t channels) {
  const std::size_t probes = rows < 16 ? rows : 16;
  double sum = 0.0;
  for (std::size_t p = 0; p < probes; ++p)
    sum += static_cast<double>(to_float(x[p * rows / probes * channels]));
  return sum / static_cast<double>(probes);
}

/// In a device's memory: what the host knows of a step before its update.
struct UpdateInputs {
  double weight = 1.0;  ///< Of the step: the gradient's sum is divided by it.
  double learning_rate = 0.0;
};

/// In a device's memory: what a step's update does. The host reads it when the next step is under way.
struct UpdateDecision {
  float scale = 0.0F;        ///< Multiplies the gradient: clip coefficient / weight of the step.
  std::int32_t applies = 0;  ///< 0: the gradient is not finite, and nothing changes.
  std::int64_t count = 0;    ///< Steps applied, this one included.
  double norm = 0.0;         ///< Of the gradient divided by the weight.
  double learning_rate = 0.0;
  // The same in float, as the updates on devices read it.
  float divisor = 1.0F;  ///< 1 / scale.
  float updates = 0.0F;  ///< count.
  float skips = 0.0F;    ///< 1: nothing changes.
  float rate = 0.0F;     ///< learning_rate.
};

/// The members in float from the others.
DTRAIN_HOST_DEVICE inline void round_for_devices(UpdateDecision& decision) {
  decision.divisor = 1.0F / decision.scale;
  decision.updates = static_cast<float>(decision.count);
  decision.skips = decision.applies == 0 ? 1.0F : 0.0F;
  decision.rate = static_cast<float>(decision.learning_rate);
}

/// `squares` and `non_finite` are those of the gradient's sum over the step; `clip` 0: there is no limit. As
/// torch.nn.utils.clip_grad_norm_.
DTRAIN_HOST_DEVICE inline void decide_on(UpdateDecision& decision, double squares, std::int64_t non_finite,
                                         double clip, const UpdateInputs& inputs) {
  decision.norm = sqrt(squares) / inputs.weight;
  decision.applies = non_finite == 0 ? 1 : 0;
  decision.count += decision.applies;
  decision.learning_rate = inputs.learning_rate;
  const double limited = clip > 0 ? clip / (decision.norm + 1e-6) : 1.0;
  decision.scale = static_cast<float>((limited < 1.0 ? limited : 1.0) / inputs.weight);
  round_for_devices(decision);
}

/// A run of elements with one weight decay that adam() updates: of the parameters from `begin` on, and of the
/// state from `place` on.
struct UpdateChunk {
  std::int64_t begin = 0;
  std::int64_t place = 0;
  std::int32_t size = 0;
  float weight_decay = 0.0F;
};

/// The constants of adam and adamw, as OptimizerConfig has them.
struct AdamRule {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  bool decoupled = false;  ///< adamw.
};

/// What is the same for all elements of a step.
struct AdamStep {
  float learning_rate;
  // 1 - beta^count, which Adam divides its moments by.
  float first;
  float second_root;  ///< Its square root.
};

DTRAIN_HOST_DEVICE inline AdamStep adam_step_of(const AdamRule& rule, const UpdateDecision& decision) {
  const auto steps = static_cast<double>(decision.count);
  return {decision.rate, static_cast<float>(1.0 - pow(static_cast<double>(rule.beta1), steps)),
          static_cast<float>(sqrt(1.0 - pow(static_cast<double>(rule.beta2), steps)))};
}

/// Source: Kingma and Ba, "Adam", ICLR 2015; Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
/// 2019.
DTRAIN_HOST_DEVICE inline float adam_of(float value, float& first, float& second, float gradient,
                                        const AdamRule& rule, const AdamStep& step, float weight_decay) {
  if (rule.decoupled) {
    value -= step.learning_rate * weight_decay * value;
  } else {
    gradient += weight_decay * value;
  }
  first = rule.beta1 * first + (1.0F - rule.beta1) * gradient;
  second = rule.beta2 * second + (1.0F - rule.beta2) * gradient * gradient;
  const float deviation = sqrtf(second) / step.second_root + rule.eps;
  return value - step.learning_rate / step.first * first / deviation;
}

}  // namespace dtrain::kernels
