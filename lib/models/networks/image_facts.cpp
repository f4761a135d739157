#include "models/networks/image_facts.hpp"

#include <fmt/format.h>

#include "models/shape.hpp"

namespace dtrain::models {

void require_images(const std::string& model, const DatasetFacts& facts, std::int64_t smallest,
                    Classes classes) {
  const Shape& sample = facts.sample_shape;
  const bool fits = sample.size() == 3 && sample[1] >= smallest && sample[2] >= smallest &&
                    (classes == Classes::not_needed || facts.classes > 0);
  if (fits) return;
  const std::string wanted = classes == Classes::needed ? " with classes" : "";
  const std::string given = classes == Classes::needed ? fmt::format(" with {} classes", facts.classes) : "";
  throw usage_error(
      fmt::format("the model {} takes images [C, H, W] of at least {} x {}{}, not samples of shape {}{}",
                  model, smallest, smallest, wanted, shape_text(sample), given),
      "--model " + model, "use another --model or --dataset");
}

}  // namespace dtrain::models
