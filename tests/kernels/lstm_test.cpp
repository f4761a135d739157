#include "kernels/lstm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dtrain::kernels {
namespace {

constexpr LstmCells kCells{.rows = 3, .width = 21};
constexpr std::size_t kCount = kCells.rows * kCells.width;

/// Sums from deep saturation on one side to the other.
template <class T>
std::vector<T> gate_sums() {
  std::vector<T> sums(4 * kCount);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = static_cast<T>(std::sin(static_cast<double>(i) * 0.7) * (i % 11 == 0 ? 200.0 : 4.0));
  }
  return sums;
}

template <class T>
std::vector<T> wave(double factor) {
  std::vector<T> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    values[i] = static_cast<T>(std::cos(static_cast<double>(i) * factor));
  return values;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

template <class T>
void expect_forward(double tolerance) {
  auto gates = gate_sums<T>();
  const auto before = wave<T>(0.3);
  std::vector<T> cell(kCount);
  std::vector<T> hidden(kCount);
  lstm_forward(gates.data(), before.data(), cell.data(), hidden.data(), kCells);
  const auto sums = gate_sums<T>();
  for (std::size_t i = 0; i < kCount; ++i) {
    const T* row = sums.data() + i / kCells.width * 4 * kCells.width + i % kCells.width;
    const double c =
        sigmoid(row[kCells.width]) * before[i] + sigmoid(row[0]) * std::tanh(double{row[2 * kCells.width]});
    EXPECT_NEAR(cell[i], c, tolerance);
    EXPECT_NEAR(hidden[i], sigmoid(row[3 * kCells.width]) * std::tanh(c), tolerance);
  }
}

TEST(LstmKernelTest, ForwardIsTheTextbooksAlsoInSaturation) {
  expect_forward<float>(5e-7);
  expect_forward<double>(1e-14);
}

/// The sum of all cells times `cell_weights` and all hidden values times `hidden_weights`.
double objective(std::vector<double> gates, const std::vector<double>& before,
                 const std::vector<double>& cell_weights, const std::vector<double>& hidden_weights) {
  std::vector<double> cell(kCount);
  std::vector<double> hidden(kCount);
  lstm_forward(gates.data(), before.data(), cell.data(), hidden.data(), kCells);
  double sum = 0;
  for (std::size_t i = 0; i < kCount; ++i) sum += cell[i] * cell_weights[i] + hidden[i] * hidden_weights[i];
  return sum;
}

TEST(LstmKernelTest, BackwardIsTheDifferenceQuotient) {
  std::vector<double> sums = gate_sums<double>();
  for (double& sum : sums) sum = std::fmod(sum, 3.0);
  const auto before = wave<double>(0.3);
  const auto cell_weights = wave<double>(0.9);
  const auto hidden_weights = wave<double>(1.7);
  auto activations = sums;
  std::vector<double> cell(kCount);
  std::vector<double> hidden(kCount);
  lstm_forward(activations.data(), before.data(), cell.data(), hidden.data(), kCells);

  std::vector<double> gate_gradients(4 * kCount);
  auto cell_gradient = cell_weights;
  std::vector<double> half(kCount);
  for (std::size_t i = 0; i < kCount; ++i) half[i] = hidden_weights[i] / 2.0;
  lstm_backward(gate_gradients.data(), cell_gradient.data(), half.data(), half.data(), activations.data(),
                before.data(), cell.data(), kCells);

  constexpr double kStep = 1e-6;
  for (const std::size_t i : {0U, 5U, 40U, 84U, 130U, 251U}) {
    auto above = sums;
    auto below = sums;
    above[i] += kStep;
    below[i] -= kStep;
    const double slope = (objective(above, before, cell_weights, hidden_weights) -
                          objective(below, before, cell_weights, hidden_weights)) /
                         (2.0 * kStep);
    EXPECT_NEAR(gate_gradients[i], slope, 1e-8) << "gate " << i;
  }
  for (const std::size_t i : {0U, 31U, 62U}) {
    auto above = before;
    auto below = before;
    above[i] += kStep;
    below[i] -= kStep;
    const double slope = (objective(sums, above, cell_weights, hidden_weights) -
                          objective(sums, below, cell_weights, hidden_weights)) /
                         (2.0 * kStep);
    EXPECT_NEAR(cell_gradient[i], slope, 1e-8) << "cell " << i;
  }
}

}  // namespace
}  // namespace dtrain::kernels
