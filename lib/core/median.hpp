#pragma once

#include <vector>

namespace dtrain {

/// The middle one, or the mean of the two in the middle. NaN where there are none.
double median(std::vector<double> values);

}  // namespace dtrain
