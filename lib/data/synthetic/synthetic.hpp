#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// A dataset made from a formula: learnable, and a pure function of this struct.
struct SyntheticSpec {
  std::string task = "image_classification";  ///< One of synthetic_tasks().
  std::vector<std::int64_t> shape;  ///< Of one sample: [C, H, W], [F], [T, F]; [T] for text. Empty: by task.
  std::int64_t classes = 10;        ///< Ignored where a task has none.
  std::int64_t vocabulary = 64;     ///< Of text tasks, with the four special ids.
  std::int64_t train_samples = 8192;
  std::int64_t validation_samples = 1024;
  std::int64_t test_samples = 1024;
  std::uint64_t seed = 1;

  /// The shape, or the task's own: [1, 28, 28], [32], [32], [24], [12], [64] in the order of
  /// synthetic_tasks().
  std::vector<std::int64_t> sample_shape() const;

  /// Throws usage_error (exit code 2).
  void validate() const;
};

/// image_classification, table_classification, regression, text_classification, translation,
/// language_modelling.
const std::vector<std::string>& synthetic_tasks();

/// The dataset in memory: no files, the same on every rank. Throws usage_error for a task there is not.
/// Images: a random smooth prototype per class plus noise, uint8. Tables: a prototype per class plus noise.
/// Regression: a linear map plus a sine of another. Text: words drawn by class. Pairs: the target is the
/// source reversed under a fixed substitution. Language modelling: a Markov chain with few successors.
Dataset synthetic_dataset(const SyntheticSpec& spec);

}  // namespace dtrain::data
