#include "models/shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dtrain::models {

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

double element_count(const Shape& shape) {
  double count = 1.0;
  for (const std::int64_t extent : shape) count *= static_cast<double>(extent);
  return count;
}

Error input_error(const std::string& layer, const std::string& wanted, at::IntArrayRef got) {
  return usage_error(fmt::format("takes {} but was given {}", wanted, shape_text(got)),
                     fmt::format("layer {}", layer), "use a --dataset whose samples fit the --model");
}

}  // namespace dtrain::models
