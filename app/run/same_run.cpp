#include "run/same_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <vector>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "options/option.hpp"
#include "options/recipe.hpp"
#include "options/toml_file.hpp"
#include "parallel/strategy/registry.hpp"
#include "state/kept_program.hpp"
#include "train/config/federated_setting.hpp"

namespace dtrain::app {
namespace {

constexpr const char* kOutputs = "What it leaves behind";

/// What a run that goes on from another run's checkpoint with `--optimizer-state` may have otherwise.
bool belongs_to_update(const Option& option, const std::string& optimizer_state) {
  static const std::set<std::string> kUpdate = {"global-batch",
                                                "micro-batches",
                                                "adaptive-batch",
                                                "learning-rate",
                                                "momentum",
                                                "nesterov",
                                                "beta1",
                                                "beta2",
                                                "epsilon",
                                                "weight-decay",
                                                "decay",
                                                "schedule",
                                                "warmup-steps",
                                                "grad-clip",
                                                "min-learning-rate",
                                                "class-weights",
                                                "label-smoothing",
                                                "augment",
                                                "augment-padding",
                                                "strategy",
                                                "sync-period",
                                                "sync-optimizer",
                                                "local-after",
                                                "outer-optimizer",
                                                "outer-learning-rate",
                                                "outer-momentum",
                                                "fragments",
                                                "exchange-type",
                                                "overlap-steps",
                                                "easgd-mode",
                                                "elasticity",
                                                "servers",
                                                "staleness",
                                                "staleness-rate",
                                                "partition",
                                                "clients",
                                                "clients-per-round",
                                                "local-epochs",
                                                "local-batch",
                                                "federated-rule",
                                                "proximal-mu",
                                                "server-optimizer",
                                                "server-rate",
                                                "server-momentum",
                                                "drop-rate",
                                                "secure-aggregation",
                                                "secure-threshold",
                                                "secure-ring",
                                                "secure-bits",
                                                "secure-clip",
                                                "secure-noise"};
  return kUpdate.contains(option.name) || (optimizer_state == "reset" && option.name == "optimizer");
}

/// Whether something is kept for each client by its number, which other clients would take for theirs: a
/// ledger of what its records have released, control variates, or a model.
bool keeps_by_client(const train::RunConfig& config, const std::string& optimizer_state) {
  const auto& options = config.strategy_options;
  const bool has_ledgers = train::is_federated(config) && options.dp_clip > 0 && options.dp_unit == "record";
  return has_ledgers || (optimizer_state != "reset" && train::clients_keep_states(config));
}

bool may_differ(const Option& option, const train::RunConfig& config) {
  static const std::set<std::string> kFree = {"epochs",
                                              "rounds",
                                              "round-deadline",
                                              "limit-steps",
                                              "exit-after",
                                              "mesh",
                                              "rank-order",
                                              "pipeline",
                                              "virtual-stages",
                                              "balance",
                                              "recompute",
                                              "memory-limit",
                                              "inject",
                                              "on-failure",
                                              "emulate",
                                              "spares",
                                              "replicate",
                                              "verify-every",
                                              "watchdog",
                                              "device",
                                              "tf32",
                                              "nccl-shared",
                                              "staging",
                                              "data-root",
                                              "eval-batch",
                                              "early-stopping",
                                              "golden",
                                              "compression",
                                              "compression-after",
                                              "shard-within",
                                              "optimizer-state-bits",
                                              "offload"};
  // The last bits of sums depend on these.
  static const std::set<std::string> kFreeUnlessReproducible = {"threads", "bucket-mb", "all-reduce"};
  if (option.group == kOutputs || kFree.contains(option.name)) return true;
  if (config.reproducible) return false;
  // An earlier version took --reproducible for noise of the system's randomness, which repeats nothing.
  const bool was_vain =
      option.name == "reproducible" && config.strategy == "fedavg" && config.strategy_options.dp_clip > 0;
  return was_vain || kFreeUnlessReproducible.contains(option.name);
}

std::map<std::string, std::string> values_of(const std::string& toml, const std::string& origin) {
  std::map<std::string, std::string> values;
  for (const auto& entry : parse_toml(toml, origin)) {
    values[entry.key] = fmt::format("{}", fmt::join(entry.values, " "));
  }
  return values;
}

/// A number of an earlier run's configuration; 0 where it has none.
std::int64_t number_of(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto place = values.find(key);
  return place == values.end() ? 0 : parse_number<std::int64_t>(place->second).value_or(0);
}

/// How to give all options of the run whose checkpoint this is at once; empty where its file is not there.
std::string all_of_run(const std::filesystem::path& checkpoint) {
  const auto file = std::filesystem::absolute(checkpoint).parent_path().parent_path() / "config.toml";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  return fmt::format(", all of them by --config {} --name {}",
                     file.lexically_relative(std::filesystem::current_path()).string(),
                     file.parent_path().filename().string());
}

}  // namespace

std::int64_t global_batch_of(const checkpoint::CheckpointInfo& info, const std::string& checkpoint) {
  return number_of(values_of(info.config, checkpoint + "/manifest.json"), "global-batch");
}

bool is_longer(const train::RunConfig& config, const checkpoint::CheckpointInfo& info,
               const std::string& checkpoint) {
  const auto then = values_of(info.config, checkpoint + "/manifest.json");
  const auto limit = number_of(then, "limit-steps");
  if (config.limit_steps > 0 && config.limit_steps <= info.step) return false;
  const auto patience = number_of(then, "early-stopping");
  const auto wanted = config.validation.early_stopping;
  if (config.given.contains("early-stopping") && patience > 0 && (wanted == 0 || wanted > patience))
    return true;
  const auto grows = [&](const std::string& option, std::int64_t wanted_now) {
    return config.given.contains(option) && wanted_now > number_of(then, option);
  };
  // The configuration may not be resolved yet: until then a federated run's epochs are not its rounds.
  return grows("epochs", config.epochs) || grows("rounds", config.strategy_options.federated.rounds) ||
         (config.given.contains("limit-steps") && limit > 0 &&
          (config.limit_steps == 0 || config.limit_steps > limit));
}

void check_same_run(const train::RunConfig& config, const checkpoint::CheckpointInfo& info,
                    const std::string& checkpoint, Origin origin) {
  const auto& state = config.output.optimizer_state;
  const bool other_update = origin == Origin::other_run && state != "exact";
  const auto then = values_of(info.config, checkpoint + "/manifest.json");
  const auto now = values_of(config.text, "the configuration");
  // What a file does not name is at its default: it may be of a version that did not have the option yet.
  train::RunConfig by_recipe;
  by_recipe.model.name = config.model.name;
  // These two decide what the file has of the rule, and whether the recipe has a warm-up.
  by_recipe.update.schedule.name = config.update.schedule.name;
  by_recipe.given = {"schedule"};
  apply_recipe(by_recipe);
  by_recipe.given.insert("warmup-steps");  // the recipe's is not in the file unless it counts as given
  by_recipe.update.rule.name = config.update.rule.name;
  const auto defaults = values_of(to_toml(by_recipe), "the defaults");
  const auto value = [&defaults](const auto& values, const std::string& key) {
    for (const auto* source : {&values, &defaults}) {
      const auto place = source->find(key);
      if (place != source->end() && !place->second.empty()) return place->second;
    }
    return std::string("nothing");
  };
  const bool same_clients = value(then, "strategy") == config.strategy && keeps_by_client(config, state);
  std::vector<std::string> others;
  bool keep_takes_them = true;
  for (const Option& option : run_options()) {
    const std::string before = value(then, option.name);
    const std::string after = value(now, option.name);
    const bool of_clients = option.name == "partition" || option.name == "clients";
    if (other_update && belongs_to_update(option, state) && !(of_clients && same_clients)) continue;
    // A file may have moved: what it computes is compared with the checkpoint's when it has been read.
    if (option.name == "model" && models::is_program_file(before) && models::is_program_file(after)) continue;
    // Which weights the run was begun with no longer matters: the folder that named them may have moved.
    if (option.name == "init-from" && before != "nothing" && after != "nothing") continue;
    if (option.name == "strategy" && parallel::makes_same_steps(before, after)) continue;
    if (before != after && !may_differ(option, config)) {
      others.push_back(fmt::format("--{} was {} and is {}", option.name, before, after));
      keep_takes_them = keep_takes_them && belongs_to_update(option, "keep");
    }
  }
  if (others.empty()) return;
  throw usage_error(
      fmt::format("the run was begun with other settings: {}", fmt::join(others, ", ")), checkpoint,
      fmt::format("give them again{}", all_of_run(checkpoint)) +
          (other_update ? ", or begin from its weights with --init-from"
           : keep_takes_them
               ? ", or start another run with another --name, from this checkpoint with --resume and "
                 "--optimizer-state keep, or from its weights with --init-from"
               : ", or start another run with another --name, from its weights with --init-from"));
}

}  // namespace dtrain::app
