#pragma once

#include <cstdint>
#include <vector>

#include "data/source.hpp"

namespace dtrain::data {

/// The weight of each class for `--class-weights balanced`: n / (k n_c) for a class that n_c of n samples
/// have, k classes being present; 0 for an absent one. They add up to n over the split, so the loss keeps its
/// scale. [classes]. Reads all targets of `train`: every rank finds the same weights. Throws
/// Error (exit code 3) for a target that is no class.
/// Source: King and Zeng, "Logistic regression in rare events data", Political Analysis 9(2), 2001.
std::vector<double> balanced_class_weights(const SampleSource& train, std::int64_t classes);

}  // namespace dtrain::data
