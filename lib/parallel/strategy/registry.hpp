#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/strategy/abilities.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// A strategy as `--strategy` knows it.
struct StrategyEntry {
  std::string name;
  std::string rule;  ///< For the help: what the copies agree on, and when.
  /// The strategy whose steps it makes in another way, so that a run may go on with either. Empty: none.
  std::string steps_of = {};
  /// Of StrategyOptions, those that it has, named as on the command line without dashes.
  std::vector<std::string> options = {};
  /// For estimates of memory: blocks of the parameters' size that a rank holds beside parameters, gradients
  /// and the optimizer's state. Null: none.
  int (*blocks)(const StrategyOptions& options) = nullptr;
  /// For estimates of memory: what the copies of the model share out.
  struct Shares {
    bool node = false;  ///< Where they are on one node, it has parameters and the optimizer's state once.
    bool optimizer = false;
    bool gradients = false;  ///< Unless the run is to be reproducible.
    bool parameters = false;
  } shares = {};
  Abilities (*can)(const Setting& setting);
  /// Collective over StrategyParts::world.
  std::unique_ptr<Strategy> (*make)(const StrategyParts& parts);
};

/// All strategies, the default first. A new one is its own file and one line there.
const std::vector<StrategyEntry>& strategies();

/// Throws Error (exit code 2) naming the strategies there are.
const StrategyEntry& find_strategy(const std::string& name);

/// Whether strategies of these names make the same steps. Also for names that there are not.
bool makes_same_steps(const std::string& one, const std::string& other);

/// What the strategy can do. Throws Error (exit code 2) where it does not run in this setting, with its
/// reason.
Abilities require_strategy(const std::string& name, const Setting& setting);

/// For the help: `ddp (all copies apply the same sum of gradients in each step)`, and so on.
std::string strategies_in_words();

}  // namespace dtrain::parallel
