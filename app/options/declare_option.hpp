#pragma once

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <utility>

#include "options/option.hpp"
#include "options/option_value.hpp"

namespace dtrain::app {

/// Binds an option to the member that `access` returns for a train::RunConfig, const or not. The help shows
/// `fallback`, or where that is empty the member's own default.
template <typename Access>
Option declare_option(std::string group, std::string name, std::string argument, std::string help,
                      std::string fallback, Access access) {
  using Value = std::remove_cvref_t<decltype(access(std::declval<train::RunConfig&>()))>;
  Option option;
  if constexpr (std::is_same_v<Value, bool>) option.kind = Option::Kind::toggle;
  if constexpr (std::is_same_v<Value, decltype(train::ModelConfig::options)>)
    option.kind = Option::Kind::list;
  if (fallback.empty()) {
    const train::RunConfig defaults;
    if constexpr (std::is_same_v<Value, std::string>) {
      fallback = access(defaults);
    } else if constexpr (std::is_enum_v<Value>) {
      fallback = name_of(access(defaults));
    } else if constexpr (std::is_same_v<Value, bool>) {
      fallback = "off";
    } else if constexpr (std::is_arithmetic_v<Value>) {
      fallback = fmt::format("{}", access(defaults));
    }
  }
  option.set = [name, access](train::RunConfig& config, const std::string& text) {
    read_value(text, name, access(config));
  };
  option.toml = [access](const train::RunConfig& config) { return write_toml(access(config)); };
  option.name = std::move(name);
  option.argument = std::move(argument);
  option.group = std::move(group);
  option.help = std::move(help);
  option.fallback = std::move(fallback);
  return option;
}

}  // namespace dtrain::app
