#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "h5/library.hpp"

namespace dtrain::record {

/// What a model said about each sample of a split, row by row in the order of the samples.
struct Predictions {
  std::string model;
  std::string dataset;
  std::string split;                       ///< Of the dataset; of new samples the file they come from.
  std::vector<std::string> names;          ///< Of each sample, such as a file's; empty: they are counted.
  std::vector<std::string> classes;        ///< Their names; empty where there are none.
  std::vector<std::string> target_names;   ///< Of several numbers of a regression; else empty.
  std::vector<std::int64_t> output_shape;  ///< Of one sample.
  std::vector<float> outputs;  ///< [n, output_shape...]: of the last layer, logits of a classifier.
  std::vector<std::int64_t> target_shape;  ///< Of one sample; empty for a number.
  std::vector<double> targets;             ///< [n, target_shape...]; empty where they are not known.
  std::vector<std::int64_t> code_shape;    ///< Of one sample.
  std::vector<float> codes;                ///< [n, code_shape...]; empty where the model has none.
  std::int64_t samples = 0;                ///< n
};

/// The probability of each class, [n, classes] or of each place [n, classes, H, W]: of the outputs, which are
/// logits, the softmax.
std::vector<double> probabilities_of(const Predictions& predictions);

/// The class of each sample's largest output, [n], or of each place's, [n, H, W].
std::vector<std::int64_t> predicted_classes(const Predictions& predictions);

/// Writes `/outputs`, `/targets` where they are known, for classifiers `/predicted` (the class of the largest
/// output), `/probabilities` [n, classes] and, with targets, up to 1,000 classes `/confusion` [classes,
/// classes] (samples by class and predicted class), `/target_names`, `/names` and `/codes` where there are
/// any, into a new file that replaces one of that name when it is whole. Throws Error (exit code 1).
void write_predictions(const std::string& path, const Predictions& predictions, h5::Library& library);

}  // namespace dtrain::record
