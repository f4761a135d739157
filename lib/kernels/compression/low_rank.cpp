#include "kernels/compression/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/philox.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kLanes = 16;

// Of a column's own size: what it must add to those before it to count. Cholesky in double has half as many
// digits to lose as Gram and Schmidt's way.
constexpr double kDependsCholesky = 1e-5;
constexpr double kDepends = 1e-6;

/// The products of the columns with each other [rank, rank], lower half.
std::vector<double> products_of(const float* vectors, std::size_t rows, std::size_t rank) {
  std::vector<double> products(rank * rank, 0);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* const row = vectors + r * rank;
    for (std::size_t i = 0; i < rank; ++i) {
      for (std::size_t j = 0; j <= i; ++j) products[i * rank + j] += double{row[i]} * double{row[j]};
    }
  }
  return products;
}

/// The lower factor in place; false where a column nearly depends on those before it, or is not finite.
bool factorise(std::vector<double>& products, std::size_t rank) {
  for (std::size_t i = 0; i < rank; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = products[i * rank + j];
      for (std::size_t k = 0; k < j; ++k) rest -= products[i * rank + k] * products[j * rank + k];
      if (i == j) {
        const double least = kDependsCholesky * products[i * rank + i];
        if (!(rest > least) || !std::isfinite(rest)) return false;
        products[i * rank + i] = std::sqrt(rest);
      } else {
        products[i * rank + j] = rest / products[j * rank + j];
      }
    }
  }
  return true;
}

/// Each row times the inverse of the factor's transpose.
void solve(float* vectors, std::size_t rows, std::size_t rank, const std::vector<double>& factor) {
  std::vector<double> solved(rank);
  for (std::size_t r = 0; r < rows; ++r) {
    float* const row = vectors + r * rank;
    for (std::size_t i = 0; i < rank; ++i) {
      double rest = row[i];
      for (std::size_t k = 0; k < i; ++k) rest -= factor[i * rank + k] * solved[k];
      solved[i] = rest / factor[i * rank + i];
      row[i] = static_cast<float>(solved[i]);
    }
  }
}

/// Columns as vectors of their own, made orthonormal one after another.
class GramSchmidt {
 public:
  GramSchmidt(float* vectors, std::size_t rows, std::size_t rank, unsigned seed)
      : vectors_(vectors), rows_(rows), rank_(rank), seed_(seed) {}

  void run() {
    for (std::size_t i = 0; i < rank_; ++i) {
      std::vector<double> column(rows_);
      for (std::size_t r = 0; r < rows_; ++r) column[r] = vectors_[r * rank_ + i];
      for (std::uint32_t trial = 0; !adds(column) && trial < kTrials; ++trial) column = drawn(i, trial);
      for (std::size_t r = 0; r < rows_; ++r) vectors_[r * rank_ + i] = static_cast<float>(column[r]);
      done_.push_back(std::move(column));
    }
  }

 private:
  static constexpr std::uint32_t kTrials = 8;

  static double size_of(const std::vector<double>& column) {
    double squares = 0;
    for (const double value : column) squares += value * value;
    return std::sqrt(squares);
  }

  /// Leaves what is new of a column, of size 1; false where that is next to nothing.
  bool adds(std::vector<double>& column) const {
    const double before = size_of(column);
    if (!(before > 0)) return false;
    for (int pass = 0; pass < 2; ++pass) {  // the second takes what rounding left
      for (const auto& other : done_) {
        double common = 0;
        for (std::size_t r = 0; r < rows_; ++r) common += column[r] * other[r];
        for (std::size_t r = 0; r < rows_; ++r) column[r] -= common * other[r];
      }
    }
    const double size = size_of(column);
    if (size <= kDepends * before) return false;
    for (double& value : column) value /= size;
    return true;
  }

  std::vector<double> drawn(std::size_t column, std::uint32_t trial) const {
    const RandomKey key{.seed = seed_,
                        .purpose = Purpose::compression,
                        .major = static_cast<std::uint32_t>(column),
                        .minor = trial,
                        .stream = stream_of("orthonormalise")};
    std::vector<double> values(rows_);
    for (std::size_t r = 0; r < rows_; ++r) values[r] = double{to_unit(philox_block(key, r)[0])} - 0.5;
    return values;
  }

  float* vectors_;
  std::size_t rows_;
  std::size_t rank_;
  unsigned seed_;
  std::vector<std::vector<double>> done_;
};

}  // namespace

void multiply_by_few(float* out, const float* matrix, const float* right, const LowRankSize& size) {
  with_avx2([=, &size]() DTRAIN_VECTOR_BODY {
    for (std::size_t r = 0; r < size.rows; ++r) {
      const float* const row = matrix + r * size.columns;
      for (std::size_t k = 0; k < size.rank; ++k) {
        const float* const other = right + k * size.columns;
        std::array<float, kLanes> sums{};
        std::size_t c = 0;
        for (; c + kLanes <= size.columns; c += kLanes) {
          for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += row[c + lane] * other[c + lane];
        }
        float sum = 0;
        for (; c < size.columns; ++c) sum += row[c] * other[c];
        for (std::size_t lane = 0; lane < kLanes; ++lane) sum += sums[lane];
        out[r * size.rank + k] = sum;
      }
    }
  });
}

void multiply_few_by(float* out, const float* left, const float* matrix, const LowRankSize& size) {
  std::fill_n(out, size.rank * size.columns, 0.0F);
  with_avx2([=, &size]() DTRAIN_VECTOR_BODY {
    for (std::size_t r = 0; r < size.rows; ++r) {
      const float* const row = matrix + r * size.columns;
      for (std::size_t k = 0; k < size.rank; ++k) {
        const float factor = left[r * size.rank + k];
        float* const sums = out + k * size.columns;
        for (std::size_t c = 0; c < size.columns; ++c) sums[c] += factor * row[c];
      }
    }
  });
}

void add_low_rank(float* matrix, const float* left, const float* right, float factor,
                  const LowRankSize& size) {
  with_avx2([=, &size]() DTRAIN_VECTOR_BODY {
    for (std::size_t r = 0; r < size.rows; ++r) {
      float* const row = matrix + r * size.columns;
      for (std::size_t k = 0; k < size.rank; ++k) {
        const float weight = factor * left[r * size.rank + k];
        const float* const other = right + k * size.columns;
        for (std::size_t c = 0; c < size.columns; ++c) row[c] += weight * other[c];
      }
    }
  });
}

void orthonormalise(float* vectors, std::size_t rows, std::size_t rank, unsigned seed) {
  auto products = products_of(vectors, rows, rank);
  if (factorise(products, rank)) {
    solve(vectors, rows, rank, products);
    return;
  }
  GramSchmidt(vectors, rows, rank, seed).run();
}

}  // namespace dtrain::kernels
