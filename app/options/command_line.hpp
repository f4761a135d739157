#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "task.hpp"

namespace dtrain::app {

/// A parser for one command, with `--help`.
class Parser : public CLI::App {
 public:
  Parser(const std::string& command, const std::string& summary);
};

/// Reads `words` into what was bound to `parser`. Returns the help for `--help`, and in another form for
/// `--help=FORM` (help_forms.hpp).
/// Throws Error (exit code 2) for an option that the command does not have (with the one that was probably
/// meant), one that this version does not have, a missing value or a word too many.
std::optional<std::string> parse(Parser& parser, const Words& words);

}  // namespace dtrain::app
