#include "options/option.hpp"

#include <fmt/format.h>

namespace dtrain::app {

void apply(const Option& option, const std::string& text, train::RunConfig& config) {
  option.set(config, text);
  config.given.insert(option.name);
}

std::string to_toml(const train::RunConfig& config) {
  std::string text;
  std::string group;
  for (const Option& option : run_options()) {
    if (option.group != group) {
      text += fmt::format("{}# {}\n", group.empty() ? "" : "\n", option.group);
      group = option.group;
    }
    const std::string value = option.toml(config);
    text += value.empty() ? fmt::format("# {} =  # {}\n", option.name,
                                        option.fallback.empty() ? option.argument : option.fallback)
                          : fmt::format("{} = {}\n", option.name, value);
  }
  return text;
}

}  // namespace dtrain::app
