#pragma once

#include <limits>

namespace dtrain::privacy {

inline constexpr double kLogZero = -std::numeric_limits<double>::infinity();

/// log(e^a + e^b).
double log_add(double a, double b);

/// log(e^a - e^b), of a >= b; kLogZero where they are equal, NaN where a < b.
double log_subtract(double a, double b);

/// log(erfc(x)), also where erfc(x) is too small for a double.
double log_erfc(double x);

/// The probability that a standard normal variable is above, or below, z. Both have full relative accuracy.
double normal_above(double z);
double normal_below(double z);

}  // namespace dtrain::privacy
