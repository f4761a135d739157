#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/convolution/max_pool.hpp"
#include "kernels/element.hpp"
#include "kernels/fused/rules.hpp"
#include "kernels/reduce.hpp"

namespace dtrain::kernels {

/// Logits [rows, stride] of which the first `words` columns are words. The others are padding.
struct TokenRows {
  std::size_t rows = 0;
  std::size_t words = 0;
  std::size_t stride = 0;  ///< Elements from one row to the next.
};

/// What a norm over the last dim takes and leaves. Shapes: tensors [rows, width], `weight` and `bias`
/// [width].
struct NormRows {
  std::size_t rows = 0;
  std::size_t width = 0;
  float eps = 1e-5F;
};

/// Where a norm's gradients go.
struct NormGradients {
  float* of_sum = nullptr;
  void* of_branch = nullptr;  ///< The same, rounded to the type of the norm's result; null: it is not wanted.
  float* of_weight = nullptr;  ///< [width].
  float* of_bias = nullptr;    ///< [width].
  float* partial = nullptr;    ///< [kPartialRows, 2, width]: for the kernels' own use.
};

/// A batch normalisation of [rows, channels], images with their channels last, with the statistics of these
/// rows, at least one; then a residual and the ReLU. Per channel: [channels].
struct ChannelNorm {
  std::size_t rows = 0;
  std::size_t channels = 0;
  double epsilon = 1e-5;
  bool relu = false;
  Element type = Element::float32;  ///< Of all tensors [rows, channels].
  const float* weight = nullptr;
  const float* bias = nullptr;
  // Per channel, written by forward and read by backward.
  double* mean = nullptr;
  double* inverse_deviation = nullptr;
  float* scale = nullptr;
  float* shift = nullptr;
  double* partial = nullptr;  ///< [FusedKernels::kStatisticParts, 2, channels], for the kernels' own use.
};

/// Where a forward pass adds its moments, the variance as that of rows - 1: both [channels], or null.
struct StepMoments {
  double* mean = nullptr;
  double* variance = nullptr;
  double samples = 0;  ///< What the moments are multiplied by.
};

/// What reaches a normalisation, and what it gives back.
struct ChannelNormGradient {
  void* of_x = nullptr;
  void* of_residual = nullptr;  ///< Null: it had none.
  float* of_weight = nullptr;
  float* of_bias = nullptr;
  float* factors = nullptr;  ///< [3, channels], for the kernels' own use.
  const void* of_output = nullptr;
  const void* x = nullptr;
  const void* output = nullptr;  ///< By which zeros of the ReLU are known; null: without a residual, by x.
};

/// What adam() works on: flat buffers in the device's memory, and the runs of them that it updates.
struct AdamMemory {
  float* values = nullptr;
  float* first = nullptr;  ///< The state.
  float* second = nullptr;
  const float* gradient = nullptr;
  void* copy = nullptr;  ///< Of the new values in half precision, laid out as they are; null: none is made.
  Element copy_type = Element::bfloat16;
  const UpdateChunk* chunks = nullptr;  ///< In the device's memory, too; they do not overlap.
  std::size_t chunk_count = 0;
};

/// Several operations in one pass each, for what a GPU spends on memory rather than on arithmetic. There is
/// one table for the CPU and one for a GPU (DeviceKernels::fused()); both give the same to rounding. Pointers
/// lead into that device's memory; `stream` as in DeviceKernels. Each call throws Error where CUDA refuses
/// the launch.
class FusedKernels {
 public:
  using Stream = void*;
  virtual ~FusedKernels() = default;

  /// losses[r] = log sum exp of row r's words - the logit of targets[r], in float; `log_sums` [rows] keeps
  /// the former for the gradient.
  virtual void token_loss(float* losses, float* log_sums, const void* logits, Element type,
                          const std::int64_t* targets, const TokenRows& rows, Stream stream) const = 0;
  /// The gradient of factor[0] x the sum of the losses, in place of the logits; 0 in the padding.
  virtual void token_loss_gradient(void* logits, Element type, const float* log_sums,
                                   const std::int64_t* targets, const float* factor, const TokenRows& rows,
                                   Stream stream) const = 0;
  /// Both at once for a factor of 1: the logits are read from memory once.
  virtual void token_loss_with_gradient(float* losses, void* logits, Element type,
                                        const std::int64_t* targets, const TokenRows& rows,
                                        Stream stream) const = 0;

  /// Rows of the partial sums that column_sums() and residual_norm_gradient() need room for.
  static constexpr std::size_t kPartialRows = 256;
  /// sums[c] = the sum over the rows of `values` [rows, columns], in float. `partial` [kPartialRows,
  /// columns]: for the kernels' own use.
  virtual void column_sums(float* sums, float* partial, const void* values, Element type, std::size_t rows,
                           std::size_t columns, Stream stream) const = 0;

  /// Widest row that the next two take on a GPU.
  static constexpr std::size_t kWidestNorm = 6144;
  /// sum = input + branch (no branch, null: sum is the input and is not written), then a layer norm of it:
  /// `normed` of `type`, `means` and `deviations` (1 / standard deviation) [rows] for the gradient.
  virtual void residual_norm(float* sum, void* normed, Element type, float* means, float* deviations,
                             const float* input, const void* branch, Element branch_type, const float* weight,
                             const float* bias, const NormRows& rows, Stream stream) const = 0;
  /// The gradient of the sum: of what follows it directly (`passed`, null: nothing does) and through the
  /// norm.
  virtual void residual_norm_gradient(const NormGradients& to, const float* passed, const void* of_normed,
                                      Element type, const float* sum, const float* weight, const float* means,
                                      const float* deviations, const NormRows& rows, Stream stream) const = 0;

  /// Partial sums over rows that batch norm has room for.
  static constexpr std::size_t kStatisticParts = 256;
  /// `output` = the normalised `x`, plus `residual` unless null, then the ReLU.
  virtual void batch_norm(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                          const StepMoments& step, Stream stream) const = 0;
  virtual void batch_norm_gradient(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                                   Stream stream) const = 0;

  /// As max_pool_2x2_inner(): planes [height, width, inner] of `type`; `which` has a byte for each maximum.
  virtual void max_pool(void* out, std::uint8_t* which, const void* input, Element type, const PoolSize& size,
                        std::size_t inner, Stream stream) const = 0;
  /// As max_pool_2x2_inner_backward(): writes every element of `input_gradient`.
  virtual void max_pool_gradient(void* input_gradient, const void* gradient, const std::uint8_t* which,
                                 Element type, const PoolSize& size, std::size_t inner,
                                 Stream stream) const = 0;

  /// Whether the step is applied and by what its gradient is multiplied, from the gradient's squares; counts
  /// the steps applied. `clip`: longest that the gradient divided by the step's weight may be; 0: any.
  virtual void decide(UpdateDecision* decision, const SumOfSquares* squares, double clip,
                      const UpdateInputs* inputs, Stream stream) const = 0;
  /// Elements of a chunk at most: a block of a GPU's has one.
  static constexpr std::int32_t kUpdateChunk = 1 << 14;
  /// Adam's update of all chunks, by one kernel, as `decision` says.
  virtual void adam(const AdamMemory& memory, const AdamRule& rule, const UpdateDecision* decision,
                    Stream stream) const = 0;
};

/// For the CPU: plain loops.
const FusedKernels& fused_kernels_of_cpu();

}  // namespace dtrain::kernels
