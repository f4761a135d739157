#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "task.hpp"

namespace dtrain::app {

/// How `--help` can be printed, besides as plain text. Each form is made from the declared options.
enum class HelpForm {
  markdown,  ///< `--help=markdown`: a part of docs/options.md.
  man,       ///< `--help=man`: a page for man, in groff's language.
  bash,      ///< `--help=bash`: a part of the script for completion in bash.
  zsh,       ///< `--help=zsh`: the same for zsh.
};

/// The form that `words` ask for; nothing where they do not begin with `--help=`. Throws Error (exit code 2)
/// for a form that there is not, and for words behind it.
std::optional<HelpForm> help_form(const Words& words);

/// One command's options in a form. `parser` is named `dtrain COMMAND`.
std::string help_in(HelpForm form, const CLI::App& parser);

/// What stands before and behind the parts of all commands, where a form joins them into one text.
std::string help_head(HelpForm form);
std::string help_tail(HelpForm form);

}  // namespace dtrain::app
