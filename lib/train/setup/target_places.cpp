#include "train/setup/target_places.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/shape.hpp"

namespace dtrain::train {
namespace {

constexpr std::int64_t kSamples = 2;  // stands for any number of them

void require_same_targets(const models::Model& model, const data::DatasetInfo& info) {
  if (info.task == "language_modelling" || info.task == "translation") return;  // words behind the samples
  const auto wanted = model.input_shapes(kSamples, info.shape).back();
  models::Shape targets = {kSamples};
  for (const auto size : info.stored_target()) targets.push_back(size);
  if (targets == wanted) return;
  throw usage_error(fmt::format("takes targets {} for two samples, and those of the dataset are {}",
                                models::shape_text(wanted), models::shape_text(targets)),
                    "--model " + model.name(),
                    "export it with an example of such targets, or choose another --dataset");
}

}  // namespace

void require_same_places(const models::Model& model, const data::DatasetInfo& info) {
  if (model.goal() == models::Goal::own_loss) return require_same_targets(model, info);
  const bool classifies = model.goal() == models::Goal::target && model.has_cross_entropy();
  if (info.classes.empty() || !classifies) return;
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
