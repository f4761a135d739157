#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/encoding.hpp"
#include "core/slice.hpp"
#include "kernels/compression/low_rank.hpp"
#include "parallel/gradients/compression/kept_error.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// A parameter's gradient as a matrix of low rank. It lies in the bucket as [rows, columns], row-major.
struct LowRankMatrix {
  std::size_t begin = 0;  ///< In the bucket.
  kernels::LowRankSize size;
  /// [rows, columns]: what this node has not sent yet, for one sample. Null where none is kept.
  float* error = nullptr;
  float* factor = nullptr;   ///< [rank, columns]: the right one, from step to step; the same on all nodes.
  std::uint32_t number = 0;  ///< Among all.

  std::size_t count() const { return size.rows * size.columns; }
};

/// How a gradient of `values` elements in `rows` becomes one of low rank. Rank 0: two factors take more than
/// half of it, and it travels as it is.
kernels::LowRankSize low_rank_size(std::size_t rows, std::size_t values, int rank);

/// A bucket whose large gradients travel as two factors, and the rest in all bits. With G the gradient and
/// what was left out in earlier steps, the nodes sum P = G Q, make it orthonormal, and sum Q = G^T P; the
/// gradient is P Q^T, and each node keeps what of its own G that lacks. Q is where the next step begins.
/// Source: Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
/// Optimization", NeurIPS 2019.
class PowerSgdEncoding final : public comm::Encoding {
 public:
  /// `plain`: elements of the bucket that travel as they are.
  /// `samples`: of the step that begins, whose gradients the bucket sums.
  PowerSgdEncoding(std::vector<LowRankMatrix> matrices, std::vector<Range> plain, const float& samples)
      : matrices_(std::move(matrices)), plain_(std::move(plain)), samples_(samples) {}

  std::uint16_t id() const override { return 100; }
  bool takes_whole_buffers() const override { return true; }
  std::size_t bytes(std::size_t count) const override;
  std::unique_ptr<comm::MessageRounds> begin(std::span<float> values, std::size_t first, int node,
                                             int nodes) override;

 private:
  std::vector<LowRankMatrix> matrices_;
  std::vector<Range> plain_;
  const float& samples_;
};

/// PowerSGD of all buckets, with its state.
class PowerSgdGradients final : public ErrorFeedback {
 public:
  PowerSgdGradients(int rank, std::uint64_t seed) : rank_(rank), seed_(seed) {}

  void lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
               comm::Group& group) override;
  comm::Encoding& of(std::size_t bucket) override { return encodings_.at(bucket); }

 private:
  LowRankMatrix matrix_of(const FlatParameters::Entry& entry, const Range& bucket);

  int rank_;
  std::uint64_t seed_;
  std::uint32_t matrices_ = 0;
  std::deque<PowerSgdEncoding> encodings_;
};

}  // namespace dtrain::parallel
