#include "record/predictions_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <system_error>

#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"

namespace dtrain::record {
namespace {

h5::Shape rows_of(std::int64_t samples, const std::vector<std::int64_t>& shape) {
  h5::Shape whole = {static_cast<std::uint64_t>(samples)};
  for (const auto extent : shape) whole.push_back(static_cast<std::uint64_t>(extent));
  return whole;
}

constexpr std::size_t kMostClasses = 1000;  // whose confusion matrix is written

/// Samples by class (row) and predicted class.
void write_confusion(hid_t file, std::size_t classes, const std::vector<std::int64_t>& targets,
                     const std::vector<std::int64_t>& predicted) {
  if (classes > kMostClasses) return;
  std::vector<std::int64_t> counts(classes * classes);
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const auto cell = static_cast<std::size_t>(targets[i]) * classes + static_cast<std::size_t>(predicted[i]);
    if (cell < counts.size()) ++counts[cell];
  }
  h5::write_dataset(file, "confusion", {classes, classes}, std::span<const std::int64_t>(counts));
}

/// Outputs [n, classes, places].
struct Extents {
  std::size_t classes;
  std::size_t places;
};

Extents extents_of(const Predictions& predictions) {
  const auto width = predictions.outputs.size() / static_cast<std::size_t>(predictions.samples);
  if (predictions.output_shape.size() < 2) return {width, 1};
  const auto classes = static_cast<std::size_t>(predictions.output_shape[0]);
  return {classes, width / std::max<std::size_t>(classes, 1)};
}

/// Calls `work(first, step)` for each place of each sample: where its first logit lies, and how far it is to
/// the next one's.
template <class Work>
void over_places(const Predictions& predictions, const Work& work) {
  const auto [classes, places] = extents_of(predictions);
  for (std::size_t row = 0; row < predictions.outputs.size(); row += classes * places) {
    for (std::size_t place = 0; place < places; ++place) work(row + place, places, classes);
  }
}

/// Of one place of a sample.
std::vector<std::int64_t> places_of(const Predictions& predictions) {
  const auto& shape = predictions.output_shape;
  return shape.empty() ? shape : std::vector<std::int64_t>(shape.begin() + 1, shape.end());
}

void write(const std::string& path, const Predictions& predictions, h5::Library& library) {
  const auto lock = library.lock();
  auto file = h5::create_file(path);
  h5::write_attribute(file.id(), "format", std::string("dtrain.predictions"));
  h5::write_attribute(file.id(), "version", std::int64_t{1});
  h5::write_attribute(file.id(), "model", predictions.model);
  h5::write_attribute(file.id(), "dataset", predictions.dataset);
  h5::write_attribute(file.id(), "split", predictions.split);
  const auto n = predictions.samples;
  h5::write_dataset(file.id(), "outputs", rows_of(n, predictions.output_shape),
                    std::span<const float>(predictions.outputs));
  const bool labelled = !predictions.targets.empty();
  const auto targets = rows_of(n, predictions.target_shape);
  if (predictions.classes.empty() && labelled)
    h5::write_dataset(file.id(), "targets", targets, std::span<const double>(predictions.targets));
  if (!predictions.classes.empty()) {
    const auto predicted = predicted_classes(predictions);
    const auto probabilities = probabilities_of(predictions);
    h5::write_dataset(file.id(), "predicted", rows_of(n, places_of(predictions)),
                      std::span<const std::int64_t>(predicted));
    h5::write_dataset(file.id(), "probabilities", rows_of(n, predictions.output_shape),
                      std::span<const double>(probabilities));
    h5::write_strings(file.id(), "classes", predictions.classes);
    if (labelled) {
      const std::vector<std::int64_t> classes(predictions.targets.begin(), predictions.targets.end());
      h5::write_dataset(file.id(), "targets", targets, std::span<const std::int64_t>(classes));
      write_confusion(file.id(), predictions.classes.size(), classes, predicted);
    }
  }
  if (!predictions.target_names.empty())
    h5::write_strings(file.id(), "target_names", predictions.target_names);
  if (!predictions.names.empty()) h5::write_strings(file.id(), "names", predictions.names);
  if (!predictions.codes.empty()) {
    h5::write_dataset(file.id(), "codes", rows_of(n, predictions.code_shape),
                      std::span<const float>(predictions.codes));
  }
  file.close();
}

}  // namespace

std::vector<double> probabilities_of(const Predictions& predictions) {
  std::vector<double> probabilities(predictions.outputs.begin(), predictions.outputs.end());
  over_places(predictions, [&](std::size_t first, std::size_t step, std::size_t classes) {
    double most = probabilities[first];
    for (std::size_t k = 1; k < classes; ++k) most = std::max(most, probabilities[first + k * step]);
    double sum = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      double& value = probabilities[first + k * step];
      sum += value = std::exp(value - most);
    }
    for (std::size_t k = 0; k < classes; ++k) probabilities[first + k * step] /= sum;
  });
  return probabilities;
}

std::vector<std::int64_t> predicted_classes(const Predictions& predictions) {
  std::vector<std::int64_t> classes;
  over_places(predictions, [&](std::size_t first, std::size_t step, std::size_t count) {
    std::size_t best = 0;
    for (std::size_t k = 1; k < count; ++k)
      if (predictions.outputs[first + k * step] > predictions.outputs[first + best * step]) best = k;
    classes.push_back(static_cast<std::int64_t>(best));
  });
  return classes;
}

void write_predictions(const std::string& path, const Predictions& predictions, h5::Library& library) {
  const std::string partial = path + ".partial";
  std::error_code failed;
  try {
    write(partial, predictions, library);
    std::filesystem::rename(partial, path);
  } catch (const std::filesystem::filesystem_error& error) {
    std::filesystem::remove(partial, failed);
    throw Error("cannot be written (" + error.code().message() + ")",
                {.subject = path, .advice = "give another file"});
  } catch (...) {
    std::filesystem::remove(partial, failed);
    throw;
  }
}

}  // namespace dtrain::record
