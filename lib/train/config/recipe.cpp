#include "models/model.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

void resolve_recipe(RunConfig& config) {
  const models::Recipe& recipe = models::find_model(config.model.name).recipe;
  const auto take = [&](const char* option, auto& value, const auto& by_model) {
    if (!config.given.contains(option)) value = by_model;
  };
  take("epochs", config.epochs, recipe.epochs);
  take("global-batch", config.batch.global_batch, recipe.global_batch);
  take("augment", config.data.augment, recipe.augment ? "on" : "off");
  auto& [rule, schedule, grad_clip, decay] = config.update;
  take("optimizer", rule.name, recipe.optimizer);
  take("learning-rate", schedule.learning_rate, recipe.learning_rate);
  take("momentum", rule.momentum, rule.adaptive() ? 0.0 : recipe.momentum);
  take("weight-decay", rule.weight_decay, recipe.weight_decay);
  take("schedule", schedule.name, recipe.schedule);
  take("warmup-steps", schedule.warmup_steps, schedule.name == "one_cycle" ? 0 : recipe.warmup_steps);
  take("grad-clip", grad_clip, recipe.grad_clip);
  take("beta1", rule.beta1, recipe.beta1);
  take("beta2", rule.beta2, recipe.beta2);
  take("decay", decay, recipe.decay_matrices_only ? "matrices" : "all");
}

}  // namespace dtrain::train
