#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dtrain::app {

/// One case of the script: what the words behind a command can be.
std::string zsh_case(const CLI::App& parser);

/// What stands before and behind the cases. The script is a function for zsh's `fpath`, and can be sourced.
/// Source: zshcompsys(1), `_arguments`.
std::string zsh_head();
std::string zsh_tail();

}  // namespace dtrain::app
