#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace dtrain::app {

/// The line of an option in the help, in its parts. What follows in brackets at its end is the default.
struct HelpLine {
  std::string text;
  std::string fallback;  ///< Empty where there is none.
};
HelpLine help_line(const CLI::Option& option);

/// `--epochs`, `-h,--help`, or a positional's name.
std::string names_of(const CLI::Option& option);

/// What its value stands for, such as `N` or `auto|none|PATH`; empty where it takes none.
std::string value_of(const CLI::Option& option);

/// The values of `auto|none|PATH` that are to be written as they are: `auto` and `none`.
std::vector<std::string> literal_values(const CLI::Option& option);

/// Whether its value may be the name of a file or folder.
bool takes_path(const CLI::Option& option);

/// The options of a parser by their heading, in the order of the help. Headings without options are left out.
struct OptionGroup {
  std::string heading;
  std::vector<const CLI::Option*> options;
};
std::vector<OptionGroup> option_groups(const CLI::App& parser);

}  // namespace dtrain::app
