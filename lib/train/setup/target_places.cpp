#include "train/setup/target_places.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/shape.hpp"

namespace dtrain::train {

void require_same_places(const models::Model& model, const data::DatasetInfo& info) {
  const bool classifies = model.goal() == models::Goal::target && model.has_cross_entropy();
  if (info.classes.empty() || !classifies) return;
  constexpr std::int64_t kSamples = 2;  // stands for any number of them
  auto shapes = model.input_shapes(kSamples, info.shape);
  for (const auto& layer : model.layers()) shapes = layer->output_shapes(shapes);
  models::Shape targets = {kSamples};
  targets.insert(targets.end(), info.target_shape.begin(), info.target_shape.end());
  models::Shape wanted = targets;
  wanted.insert(wanted.begin() + 1, static_cast<std::int64_t>(info.classes.size()));
  if (shapes.at(0) == wanted) return;
  const std::string advice =
      info.target_shape.empty()
          ? "let the last layer give one logit for each class, or stage a class for each place as [n, H, W]"
          : "train a network whose last layer gives them, exported as --model NET.pt2, or stage one class "
            "per sample";
  throw usage_error(
      fmt::format("gives outputs {} for two samples, whose targets {} have {} classes: the loss takes {}",
                  models::shape_text(shapes[0]), models::shape_text(targets), info.classes.size(),
                  models::shape_text(wanted)),
      "--model " + model.name(), advice);
}

}  // namespace dtrain::train
