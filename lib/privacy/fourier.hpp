#pragma once

#include <complex>
#include <vector>

namespace dtrain::privacy {

/// The discrete Fourier transform in place, X[f] = sum of x[j] e^(-2 pi i j f / n); `back` gives x of X, and
/// divides by n. n is a power of two.
///
/// Result: each element is wrong by at most fourier_error(n) times the sum of |x|, back: of |X| / n.
enum class Transform { forth, back };
void fourier(std::vector<std::complex<double>>& values, Transform transform);

/// A bound of the rounding error, relative to the sum of the absolute values that go in. Source: Higham,
/// "Accuracy and Stability of Numerical Algorithms", section 24.1, element by element: an element is a sum of
/// all values times unit factors, each rounded once in each of log2(n) levels.
double fourier_error(std::size_t n);

}  // namespace dtrain::privacy
