#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dtrain::app {

/// `stage` of a parser named `dtrain stage`.
std::string command_of(const CLI::App& parser);

/// The page of one command, as man shows it: dtrain-COMMAND in section 1. That of train is `dtrain`, with
/// what all commands have in common. Source: man(7) and groff_man(7), the macros that every man understands.
std::string manual_page(const CLI::App& parser);

}  // namespace dtrain::app
