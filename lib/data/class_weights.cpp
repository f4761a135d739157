#include "data/class_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.hpp"

namespace dtrain::data {

std::vector<double> balanced_class_weights(const SampleSource& train, std::int64_t classes) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(train.samples()));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  HostArray targets;
  train.gather_targets(ids, targets);
  std::vector<double> counts(static_cast<std::size_t>(classes), 0.0);
  for (const std::int64_t target : targets.as<std::int64_t>()) {
    if (target < 0 || target >= classes)
      throw data_error(fmt::format("has a sample of class {} but only {} classes", target, classes), "train",
                       "stage the dataset again");
    ++counts[static_cast<std::size_t>(target)];
  }
  const auto present =
      static_cast<double>(std::count_if(counts.begin(), counts.end(), [](double n) { return n > 0; }));
  std::vector<double> weights(counts.size(), 0.0);
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (counts[c] > 0) weights[c] = static_cast<double>(ids.size()) / (present * counts[c]);
  return weights;
}

}  // namespace dtrain::data
