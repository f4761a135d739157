#include "options/recipe.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "models/model.hpp"
#include "options/option.hpp"

namespace dtrain::app {

void apply_recipe(train::RunConfig& config) {
  apply_recipe(models::find_model(config.model.name).recipe.options, config);
}

void apply_recipe(const std::map<std::string, std::string>& options, train::RunConfig& config) {
  const auto open = [&](const char* name) { return !config.given.contains(name); };
  for (const auto& [name, value] : options) {
    const auto option = std::ranges::find(run_options(), name, &Option::name);
    require(option != run_options().end(), "is no option of a run, and a model's recipe sets it",
            {.subject = "--" + name, .advice = "mend the recipe where the model is registered"});
    if (!config.given.contains(name)) option->set(config, value);
  }
  auto& rule = config.update.rule;
  auto& schedule = config.update.schedule;
  if (open("momentum") && rule.adaptive()) rule.momentum = 0;                           // sgd's
  if (open("warmup-steps") && schedule.name == "one_cycle") schedule.warmup_steps = 0;  // it has its own
}

}  // namespace dtrain::app
