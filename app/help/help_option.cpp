#include "help/help_option.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace dtrain::app {
namespace {

std::vector<std::string> alternatives(const std::string& value) {
  std::vector<std::string> parts(1);
  for (const char letter : value) {
    if (letter == '|')
      parts.emplace_back();
    else
      parts.back() += letter;
  }
  return parts;
}

/// A placeholder has capitals; `local=DIR` and `/x` begin with what only the user can continue.
bool is_literal(const std::string& part) {
  return !part.empty() && part.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ=/") == std::string::npos;
}

}  // namespace

HelpLine help_line(const CLI::Option& option) {
  HelpLine line = {.text = option.get_description(), .fallback = {}};
  const auto bracket = line.text.rfind(" [");
  if (bracket == std::string::npos || !line.text.ends_with("]")) return line;
  line.fallback = line.text.substr(bracket + 2, line.text.size() - bracket - 3);
  line.text.erase(bracket);
  return line;
}

std::string names_of(const CLI::Option& option) { return option.get_name(option.get_positional(), true); }

std::string value_of(const CLI::Option& option) { return option.get_option_text(); }

std::vector<std::string> literal_values(const CLI::Option& option) {
  std::vector<std::string> values;
  for (const std::string& part : alternatives(value_of(option)))
    if (is_literal(part)) values.push_back(part);
  return values;
}

bool takes_path(const CLI::Option& option) {
  static constexpr std::array<std::string_view, 5> kPaths = {"FILE", "FOLDER", "PATH", "DATA", "DIR"};
  const auto parts = alternatives(value_of(option));
  return std::ranges::any_of(parts, [](const std::string& part) {
    return std::ranges::find(kPaths, part) != kPaths.end() || part.find('.') != std::string::npos;
  });
}

std::vector<OptionGroup> option_groups(const CLI::App& parser) {
  std::vector<OptionGroup> groups;
  for (const std::string& heading : parser.get_groups()) {
    auto options =
        parser.get_options([&](const CLI::Option* option) { return option->get_group() == heading; });
    if (!options.empty()) groups.push_back({heading, {options.begin(), options.end()}});
  }
  return groups;
}

}  // namespace dtrain::app
