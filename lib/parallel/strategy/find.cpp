#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "parallel/strategy/registry.hpp"

namespace dtrain::parallel {

const StrategyEntry& find_strategy(const std::string& name) {
  const auto place = std::ranges::find(strategies(), name, &StrategyEntry::name);
  if (place != strategies().end()) return *place;
  std::vector<std::string> names;
  for (const auto& entry : strategies()) names.push_back(entry.name);
  throw usage_error(fmt::format("there is no strategy {}", name), "--strategy",
                    fmt::format("use one of {}", fmt::join(names, ", ")));
}

bool makes_same_steps(const std::string& one, const std::string& other) {
  const auto steps_of = [](const std::string& name) {
    const auto place = std::ranges::find(strategies(), name, &StrategyEntry::name);
    return place == strategies().end() || place->steps_of.empty() ? name : place->steps_of;
  };
  return steps_of(one) == steps_of(other);
}

Abilities require_strategy(const std::string& name, const Setting& setting) {
  auto abilities = find_strategy(name).can(setting);
  if (!abilities.runs) {
    throw usage_error(abilities.runs.why_not, "--strategy " + name,
                      name == strategies().front().name
                          ? std::string("change that")
                          : "change that, or use --strategy " + strategies().front().name);
  }
  if (setting.reproducible && !abilities.same_bits) {
    throw usage_error(abilities.same_bits.why_not, "--strategy " + name,
                      "leave --reproducible out, or use --strategy " + strategies().front().name);
  }
  return abilities;
}

std::string strategies_in_words() {
  std::vector<std::string> all;
  for (const auto& entry : strategies()) all.push_back(fmt::format("{} ({})", entry.name, entry.rule));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace dtrain::parallel
