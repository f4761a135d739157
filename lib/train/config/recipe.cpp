#include "models/model.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

optim::OptimizerConfig optimizer_config(const OptimizerConfig& config) {
  return {.name = config.name,
          .momentum = config.momentum,
          .nesterov = config.nesterov,
          .weight_decay = config.weight_decay,
          .beta1 = config.beta1,
          .beta2 = config.beta2,
          .eps = config.epsilon};
}

optim::ScheduleConfig schedule_config(const OptimizerConfig& config) {
  return {.name = config.schedule,
          .learning_rate = config.learning_rate,
          .warmup_steps = config.warmup_steps,
          .least_rate = config.min_learning_rate};
}

void resolve_recipe(RunConfig& config) {
  const models::Recipe& recipe = models::find_model(config.model.name).recipe;
  const auto take = [&](const char* option, auto& value, const auto& by_model) {
    if (!config.given.contains(option)) value = by_model;
  };
  take("epochs", config.epochs, recipe.epochs);
  take("global-batch", config.batch.global_batch, recipe.global_batch);
  take("augment", config.data.augment, recipe.augment ? "on" : "off");
  OptimizerConfig& optimizer = config.optimizer;
  take("optimizer", optimizer.name, recipe.optimizer);
  take("learning-rate", optimizer.learning_rate, recipe.learning_rate);
  take("momentum", optimizer.momentum, optimizer.adaptive() ? 0.0 : recipe.momentum);
  take("weight-decay", optimizer.weight_decay, recipe.weight_decay);
  take("schedule", optimizer.schedule, recipe.schedule);
  take("warmup-steps", optimizer.warmup_steps, optimizer.schedule == "one_cycle" ? 0 : recipe.warmup_steps);
  take("grad-clip", optimizer.grad_clip, recipe.grad_clip);
  take("beta1", optimizer.beta1, recipe.beta1);
  take("beta2", optimizer.beta2, recipe.beta2);
  take("decay", optimizer.decay, recipe.decay_matrices_only ? "matrices" : "all");
}

}  // namespace dtrain::train
