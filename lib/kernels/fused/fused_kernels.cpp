#include "kernels/fused/fused_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

namespace dtrain::kernels {
namespace {

template <class T>
void loss_of_rows(float* losses, float* log_sums, const T* logits, const std::int64_t* targets,
                  const TokenRows& rows) {
  for (std::size_t r = 0; r < rows.rows; ++r) {
    const T* const row = logits + r * rows.stride;
    LogSum sum;
    for (std::size_t i = 0; i < rows.words; ++i) sum.add(to_float(row[i]));
    log_sums[r] = sum.value();
    losses[r] = log_sums[r] - to_float(row[targets[r]]);
  }
}

template <class T>
void gradient_of_rows(T* logits, const float* log_sums, const std::int64_t* targets, float factor,
                      const TokenRows& rows) {
  for (std::size_t r = 0; r < rows.rows; ++r) {
    T* const row = logits + r * rows.stride;
    const auto target = static_cast<std::size_t>(targets[r]);
    for (std::size_t i = 0; i < rows.words; ++i) {
      row[i] =
          from_float<T>(token_loss_gradient_of(expf(to_float(row[i]) - log_sums[r]), i == target, factor));
    }
    std::fill(row + rows.words, row + rows.stride, from_float<T>(0.0F));
  }
}

template <class T>
void norm_of_rows(T* normed, float* means, float* deviations, const float* sum, const float* weight,
                  const float* bias, const NormRows& rows) {
  const auto width = static_cast<double>(rows.width);
  for (std::size_t r = 0; r < rows.rows; ++r) {
    const float* const row = sum + r * rows.width;
    double total = 0.0;
    for (std::size_t i = 0; i < rows.width; ++i) total += row[i];
    const double mean = total / width;
    double squares = 0.0;
    for (std::size_t i = 0; i < rows.width; ++i) squares += (row[i] - mean) * (row[i] - mean);
    means[r] = static_cast<float>(mean);
    deviations[r] = static_cast<float>(1.0 / std::sqrt(squares / width + static_cast<double>(rows.eps)));
    for (std::size_t i = 0; i < rows.width; ++i) {
      normed[r * rows.width + i] =
          from_float<T>(normed_of(row[i], means[r], deviations[r], weight[i], bias[i]));
    }
  }
}

template <class T>
void sum_columns(float* sums, const T* values, std::size_t rows, std::size_t columns) {
  std::vector<double> own(columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      own[c] += static_cast<double>(to_float(values[r * columns + c]));
  for (std::size_t c = 0; c < columns; ++c) sums[c] = static_cast<float>(own[c]);
}

template <class T>
void norm_gradient_of_rows(const NormGradients& to, const float* passed, const T* of_normed, const float* sum,
                           const float* weight, const float* means, const float* deviations,
                           const NormRows& rows) {
  const std::size_t width = rows.width;
  float* const gradient = to.of_sum;
  auto* const of_branch = static_cast<T*>(to.of_branch);
  std::fill_n(to.partial, FusedKernels::kPartialRows * 2 * width, 0.0F);
  for (std::size_t r = 0; r < rows.rows; ++r) {
    float* const of_weight = to.partial + r % FusedKernels::kPartialRows * 2 * width;
    float* const of_bias = of_weight + width;
    const std::size_t at = r * width;
    const auto unit = [&](std::size_t i) { return (sum[at + i] - means[r]) * deviations[r]; };
    double scaled_sum = 0.0;
    double product_sum = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      const float above = to_float(of_normed[at + i]);
      of_weight[i] += above * unit(i);
      of_bias[i] += above;
      scaled_sum += above * weight[i];
      product_sum += above * weight[i] * unit(i);
    }
    const auto mean_scaled = static_cast<float>(scaled_sum / static_cast<double>(width));
    const auto mean_product = static_cast<float>(product_sum / static_cast<double>(width));
    for (std::size_t i = 0; i < width; ++i) {
      const float through = norm_gradient_of(to_float(of_normed[at + i]) * weight[i], unit(i), mean_scaled,
                                             mean_product, deviations[r]);
      gradient[at + i] = passed != nullptr ? passed[at + i] + through : through;
      if (of_branch != nullptr) of_branch[at + i] = from_float<T>(gradient[at + i]);
    }
  }
  for (std::size_t i = 0; i < width; ++i) {
    to.of_weight[i] = to.of_bias[i] = 0.0F;
    for (std::size_t row = 0; row < FusedKernels::kPartialRows; ++row) {
      to.of_weight[i] += to.partial[row * 2 * width + i];
      to.of_bias[i] += to.partial[(row * 2 + 1) * width + i];
    }
  }
}

/// Two sums over the rows of `term`, which gives a pair for a place.
template <class Term>
void sum_rows(double* sums, const ChannelNorm& norm, const Term& term) {
  std::fill_n(sums, 2 * norm.channels, 0.0);
  for (std::size_t r = 0; r < norm.rows; ++r) {
    for (std::size_t c = 0; c < norm.channels; ++c) {
      const auto [first, second] = term(r * norm.channels + c, c);
      sums[c] += first;
      sums[norm.channels + c] += second;
    }
  }
}

template <class T>
void normalise(T* output, const T* x, const T* residual, const ChannelNorm& norm, const StepMoments& step) {
  const auto rows = static_cast<double>(norm.rows);
  std::vector<double> centres(norm.channels);
  for (std::size_t c = 0; c < norm.channels; ++c)
    centres[c] = channel_centre(x + c, norm.rows, norm.channels);
  sum_rows(norm.partial, norm, [&](std::size_t i, std::size_t c) {
    const double deviation = static_cast<double>(to_float(x[i])) - centres[c];
    return std::pair(deviation, deviation * deviation);
  });
  for (std::size_t c = 0; c < norm.channels; ++c) {
    const double offset = norm.partial[c] / rows;
    const double variance = std::max(norm.partial[norm.channels + c] / rows - offset * offset, 0.0);
    norm.mean[c] = centres[c] + offset;
    const auto of = channel_scale_of(norm.mean[c], variance, norm.epsilon, norm.weight[c], norm.bias[c]);
    norm.inverse_deviation[c] = of.inverse_deviation;
    norm.scale[c] = of.scale;
    norm.shift[c] = of.shift;
    if (step.mean == nullptr) continue;
    step.mean[c] += step.samples * norm.mean[c];
    step.variance[c] += step.samples * variance * rows / (rows - 1.0);
  }
  for (std::size_t i = 0; i < norm.rows * norm.channels; ++i) {
    const std::size_t c = i % norm.channels;
    const float beside = residual != nullptr ? to_float(residual[i]) : 0.0F;
    output[i] = from_float<T>(scaled_of(to_float(x[i]), norm.scale[c], norm.shift[c], beside, norm.relu));
  }
}

template <class T>
void normalise_back(const ChannelNormGradient& of, const ChannelNorm& norm) {
  const T* const x = static_cast<const T*>(of.x);
  const T* const output = static_cast<const T*>(of.output);
  const T* const of_output = static_cast<const T*>(of.of_output);
  const auto masked = [&](std::size_t i, std::size_t c) {
    const float y = output != nullptr ? to_float(output[i])
                                      : scaled_of(to_float(x[i]), norm.scale[c], norm.shift[c], 0.0F, false);
    return masked_of(to_float(of_output[i]), y, norm.relu);
  };
  sum_rows(norm.partial, norm, [&](std::size_t i, std::size_t c) {
    const auto g = static_cast<double>(masked(i, c));
    return std::pair(g, g * (static_cast<double>(to_float(x[i])) - norm.mean[c]));
  });
  std::vector<ChannelFactors> factors(norm.channels);
  for (std::size_t c = 0; c < norm.channels; ++c) {
    const double sum = norm.partial[c];
    const double product_sum = norm.partial[norm.channels + c];
    of.of_weight[c] = static_cast<float>(product_sum * norm.inverse_deviation[c]);
    of.of_bias[c] = static_cast<float>(sum);
    factors[c] = channel_factors_of(sum, product_sum, static_cast<double>(norm.rows), norm.weight[c],
                                    norm.mean[c], norm.inverse_deviation[c]);
  }
  auto* const of_x = static_cast<T*>(of.of_x);
  auto* const of_residual = static_cast<T*>(of.of_residual);
  for (std::size_t i = 0; i < norm.rows * norm.channels; ++i) {
    const auto& [a, b, constant] = factors[i % norm.channels];
    const float g = masked(i, i % norm.channels);
    if (of_residual != nullptr) of_residual[i] = from_float<T>(g);
    of_x[i] = from_float<T>(g * a + (to_float(x[i]) * b + constant));
  }
}

/// Calls `work(window, place, element)` for each place of each window: `window` in what is pooled, `element`
/// in the images, both counted over their inner values.
template <class Work>
void over_windows(const PoolSize& size, std::size_t inner, const Work& work) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  for (std::size_t w = 0; w < size.planes * rows * columns; ++w) {
    const std::size_t upper = (w / columns / rows * size.height + 2 * (w / columns % rows)) * size.width;
    for (std::size_t i = 0; i < inner; ++i) {
      const auto element = [&](std::size_t place) {
        return (upper + place / 2 * size.width + 2 * (w % columns) + place % 2) * inner + i;
      };
      work(w * inner + i, element);
    }
  }
}

template <class T>
void adam_of_chunk(const AdamMemory& memory, T* copy, const UpdateChunk& chunk, const AdamRule& rule,
                   const UpdateDecision& decision) {
  const AdamStep step = adam_step_of(rule, decision);
  for (std::int32_t i = 0; i < chunk.size; ++i) {
    const std::int64_t at = chunk.begin + i;
    const std::int64_t place = chunk.place + i;
    memory.values[at] = adam_of(memory.values[at], memory.first[place], memory.second[place],
                                memory.gradient[at] * decision.scale, rule, step, chunk.weight_decay);
    if (copy != nullptr) copy[at] = from_float<T>(memory.values[at]);
  }
}

class CpuFusedKernels final : public FusedKernels {
 public:
  void token_loss(float* losses, float* log_sums, const void* logits, Element type,
                  const std::int64_t* targets, const TokenRows& rows, Stream /*stream*/) const override {
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      loss_of_rows(losses, log_sums, static_cast<const T*>(logits), targets, rows);
    });
  }

  void token_loss_gradient(void* logits, Element type, const float* log_sums, const std::int64_t* targets,
                           const float* factor, const TokenRows& rows, Stream /*stream*/) const override {
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      gradient_of_rows(static_cast<T*>(logits), log_sums, targets, *factor, rows);
    });
  }

  void token_loss_with_gradient(float* losses, void* logits, Element type, const std::int64_t* targets,
                                const TokenRows& rows, Stream stream) const override {
    std::vector<float> log_sums(rows.rows);
    const float factor = 1.0F;
    token_loss(losses, log_sums.data(), logits, type, targets, rows, stream);
    token_loss_gradient(logits, type, log_sums.data(), targets, &factor, rows, stream);
  }

  void column_sums(float* sums, float* /*partial*/, const void* values, Element type, std::size_t rows,
                   std::size_t columns, Stream /*stream*/) const override {
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      sum_columns(sums, static_cast<const T*>(values), rows, columns);
    });
  }

  void residual_norm(float* sum, void* normed, Element type, float* means, float* deviations,
                     const float* input, const void* branch, Element branch_type, const float* weight,
                     const float* bias, const NormRows& rows, Stream /*stream*/) const override {
    if (branch != nullptr) {
      with_element_type(branch_type, [&](auto* of_branch) {
        using T = std::remove_pointer_t<decltype(of_branch)>;
        const auto* const added = static_cast<const T*>(branch);
        for (std::size_t i = 0; i < rows.rows * rows.width; ++i) sum[i] = input[i] + to_float(added[i]);
      });
    }
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      norm_of_rows(static_cast<T*>(normed), means, deviations, branch != nullptr ? sum : input, weight, bias,
                   rows);
    });
  }

  void residual_norm_gradient(const NormGradients& to, const float* passed, const void* of_normed,
                              Element type, const float* sum, const float* weight, const float* means,
                              const float* deviations, const NormRows& rows,
                              Stream /*stream*/) const override {
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      norm_gradient_of_rows(to, passed, static_cast<const T*>(of_normed), sum, weight, means, deviations,
                            rows);
    });
  }

  void batch_norm(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                  const StepMoments& step, Stream /*stream*/) const override {
    with_element_type(norm.type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      normalise(static_cast<T*>(output), static_cast<const T*>(x), static_cast<const T*>(residual), norm,
                step);
    });
  }

  void batch_norm_gradient(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                           Stream /*stream*/) const override {
    with_element_type(norm.type, [&](auto* of_type) {
      normalise_back<std::remove_pointer_t<decltype(of_type)>>(gradient, norm);
    });
  }

  void max_pool(void* out, std::uint8_t* which, const void* input, Element type, const PoolSize& size,
                std::size_t inner, Stream /*stream*/) const override {
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      const T* const from = static_cast<const T*>(input);
      over_windows(size, inner, [&](std::size_t window, const auto& element) {
        const auto value = [&](std::size_t place) { return to_float(from[element(place)]); };
        which[window] = place_of_largest(value(0), value(1), value(2), value(3));
        static_cast<T*>(out)[window] = from[element(which[window])];
      });
    });
  }

  void max_pool_gradient(void* input_gradient, const void* gradient, const std::uint8_t* which, Element type,
                         const PoolSize& size, std::size_t inner, Stream /*stream*/) const override {
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      T* const to = static_cast<T*>(input_gradient);
      std::fill_n(to, size.planes * size.height * size.width * inner, from_float<T>(0.0F));
      over_windows(size, inner, [&](std::size_t window, const auto& element) {
        to[element(which[window])] = static_cast<const T*>(gradient)[window];
      });
    });
  }

  void decide(UpdateDecision* decision, const SumOfSquares* squares, double clip, const UpdateInputs* inputs,
              Stream /*stream*/) const override {
    decide_on(*decision, squares->sum, squares->non_finite, clip, *inputs);
  }

  void adam(const AdamMemory& memory, const AdamRule& rule, const UpdateDecision* decision,
            Stream /*stream*/) const override {
    if (decision->applies == 0) return;
    with_element_type(memory.copy_type, [&](auto* of_copy) {
      using T = std::remove_pointer_t<decltype(of_copy)>;
      for (std::size_t i = 0; i < memory.chunk_count; ++i)
        adam_of_chunk(memory, static_cast<T*>(memory.copy), memory.chunks[i], rule, *decision);
    });
  }
};

}  // namespace

const FusedKernels& fused_kernels_of_cpu() {
  static const CpuFusedKernels kernels;
  return kernels;
}

}  // namespace dtrain::kernels
