#include "parallel/gradients/compression/power_sgd.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/philox.hpp"
#include "parallel/gradients/compression/rounded_sum.hpp"

namespace dtrain::parallel {
namespace {

/// The factors have to be at least so many times smaller than the gradient.
constexpr std::size_t kLeastGain = 2;

class PowerSgdSum final : public comm::MessageRounds {
 public:
  PowerSgdSum(std::span<float> values, const std::vector<LowRankMatrix>& matrices,
              const std::vector<Range>& plain, float samples, int node, int nodes)
      : values_(values), matrices_(matrices), plain_(plain), samples_(samples), node_(node), nodes_(nodes) {}

  std::optional<Round> next() override {
    while (true) {
      if (sum_) {
        if (auto round = sum_->next()) return round;
        sum_.reset();
      }
      switch (part_++) {
        case 0:
          project();
          sum_.emplace(left_, BlockCodec(WireType::float32), node_, nodes_);
          break;
        case 1:
          take_plain();
          project_back();
          sum_.emplace(right_, BlockCodec(WireType::float32), node_, nodes_);
          break;
        default:
          put_together();
          return std::nullopt;
      }
    }
  }

 private:
  /// Values that travel as they are, and behind them P of each matrix.
  void project() {
    for (const Range& range : plain_)
      left_.insert(left_.end(), values_.begin() + range.begin, values_.begin() + range.end);
    plain_count_ = left_.size();
    for (const auto& matrix : matrices_) {
      float* const whole = matrix.error;  // and with the gradient that is added: G of one sample
      const float* const gradient = values_.data() + matrix.begin;
      for (std::size_t i = 0; i < matrix.count(); ++i) whole[i] += gradient[i] / samples_;
      const std::size_t place = left_.size();
      left_.resize(place + matrix.size.rows * matrix.size.rank);
      kernels::multiply_by_few(left_.data() + place, whole, matrix.factor, matrix.size);
    }
  }

  void take_plain() {
    const float* from = left_.data();
    for (const Range& range : plain_) {
      std::copy_n(from, range.size(), values_.begin() + range.begin);
      from += range.size();
    }
  }

  /// Q of each matrix. The error is what P and the node's own Q do not have.
  void project_back() {
    std::size_t place = plain_count_;
    for (const auto& matrix : matrices_) {
      float* const left = left_.data() + place;
      place += matrix.size.rows * matrix.size.rank;
      kernels::orthonormalise(left, matrix.size.rows, matrix.size.rank, matrix.number);
      const std::size_t right = right_.size();
      right_.resize(right + matrix.size.rank * matrix.size.columns);
      kernels::multiply_few_by(right_.data() + right, left, matrix.error, matrix.size);
      kernels::add_low_rank(matrix.error, left, right_.data() + right, -1, matrix.size);
    }
  }

  void put_together() {
    const float* left = left_.data() + plain_count_;
    const float* right = right_.data();
    for (const auto& matrix : matrices_) {
      float* const gradient = values_.data() + matrix.begin;
      std::fill_n(gradient, matrix.count(), 0.0F);
      kernels::add_low_rank(gradient, left, right, samples_, matrix.size);
      std::copy_n(right, matrix.size.rank * matrix.size.columns, matrix.factor);
      left += matrix.size.rows * matrix.size.rank;
      right += matrix.size.rank * matrix.size.columns;
    }
  }

  std::span<float> values_;
  const std::vector<LowRankMatrix>& matrices_;
  const std::vector<Range>& plain_;
  float samples_;
  int node_;
  int nodes_;
  int part_ = 0;
  std::size_t plain_count_ = 0;
  std::vector<float> left_;
  std::vector<float> right_;
  std::optional<RoundedSum> sum_;  // of left_ or right_
};

/// Whether the first dim of a dense tensor is the slowest in memory, so that it is a matrix of so many rows.
bool has_rows(const at::Tensor& value) {
  return value.dim() >= 2 && value.size(0) > 0 && value.stride(0) * value.size(0) == value.numel() &&
         value.is_non_overlapping_and_dense();
}

}  // namespace

kernels::LowRankSize low_rank_size(std::size_t rows, std::size_t values, int rank) {
  kernels::LowRankSize size{.rows = rows, .columns = rows == 0 ? 0 : values / rows};
  const auto most = std::min({static_cast<std::size_t>(rank), size.rows, size.columns});
  if (kLeastGain * most * (size.rows + size.columns) <= values) size.rank = most;
  return size;
}

std::size_t PowerSgdEncoding::bytes(std::size_t /*count*/) const {
  std::size_t floats = 0;
  for (const Range& range : plain_) floats += static_cast<std::size_t>(range.size());
  for (const auto& matrix : matrices_) floats += matrix.size.rank * (matrix.size.rows + matrix.size.columns);
  return floats * sizeof(float);
}

std::unique_ptr<comm::MessageRounds> PowerSgdEncoding::begin(std::span<float> values, std::size_t /*first*/,
                                                             int node, int nodes) {
  return std::make_unique<PowerSgdSum>(values, matrices_, plain_, samples_, node, nodes);
}

void PowerSgdGradients::lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
                                comm::Group& group) {
  begin_errors(parameters, group);
  for (const Range& bucket : buckets) {
    std::vector<LowRankMatrix> matrices;
    std::vector<Range> plain;
    for (const auto& entry : parameters.entries()) {
      if (entry.offset < bucket.begin || entry.offset >= bucket.end) continue;
      const auto matrix = matrix_of(entry, bucket);
      const auto begin = entry.offset - bucket.begin;
      if (matrix.size.rank > 0) matrices.push_back(matrix);
      if (matrix.size.rank == 0) plain.push_back({begin, begin + entry.count});
    }
    encodings_.emplace_back(std::move(matrices), std::move(plain), samples());
  }
}

/// Of rank 0 where it does not pay.
LowRankMatrix PowerSgdGradients::matrix_of(const FlatParameters::Entry& entry, const Range& bucket) {
  const auto& parameter = *entry.parameter;
  const auto& value = parameter.value;
  LowRankMatrix matrix{.begin = static_cast<std::size_t>(entry.offset - bucket.begin)};
  if (!has_rows(value)) return matrix;
  matrix.size =
      low_rank_size(static_cast<std::size_t>(value.size(0)), static_cast<std::size_t>(value.numel()), rank_);
  if (matrix.size.rank == 0) return matrix;
  matrix.number = matrices_++;
  const auto rank = static_cast<std::int64_t>(matrix.size.rank);
  auto factor = at::empty({rank, static_cast<std::int64_t>(matrix.size.columns)}, at::kFloat);
  matrix.factor = factor.mutable_data_ptr<float>();
  const kernels::RandomKey key{
      .seed = seed_, .purpose = kernels::Purpose::compression, .stream = kernels::stream_of(parameter.name)};
  for (std::int64_t i = 0; i < factor.numel(); ++i)
    matrix.factor[i] = kernels::to_unit(kernels::philox_block(key, static_cast<std::uint64_t>(i))[0]) - 0.5F;
  matrix.error = error_at(entry.offset);
  save_error("powersgd_residual", entry);
  // The same on all nodes: the first copy saves it for all.
  save({.group = fmt::format("{}powersgd_rank_{}", StateTensor::kOptimizer, rank_),
        .name = parameter.name,
        .value = factor,
        .owner = {.copy = StateTensor::Owner::Copy{.index = 0, .count = 1}},
        .anew = kErrorStartsAnew});
  return matrix;
}

}  // namespace dtrain::parallel
