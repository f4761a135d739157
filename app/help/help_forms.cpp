#include "help/help_forms.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <utility>

#include "commands.hpp"
#include "help/help_option.hpp"
#include "help/manual_page.hpp"
#include "help/zsh_completion.hpp"

namespace dtrain::app {
namespace {

constexpr std::string_view kAsked = "--help=";
constexpr std::array<std::pair<std::string_view, HelpForm>, 4> kForms = {{{"markdown", HelpForm::markdown},
                                                                          {"man", HelpForm::man},
                                                                          {"bash", HelpForm::bash},
                                                                          {"zsh", HelpForm::zsh}}};

// ---- Markdown ----

constexpr const char* kOptionsPage = R"(# Options

```sh
./dtrain --help                               # the options of train; ./dtrain COMMAND --help for another command
./dtrain --help=markdown > docs/options.md    # writes this page, which a test compares with the program
```

`dtrain [COMMAND] [OPTIONS]`: without a command, `train`. Each option of `train` is also a key of the TOML file that
`--config` takes. A flag overrides the file, the file overrides the model's default, and the model's default
([models](models.md)) overrides the default below. `--print-config` prints the options in force as such a file.

`--help=man` prints a page for man, `--help=bash` and `--help=zsh` the completion for these shells: [installing](installing.md#man-pages-and-completion).
)";

/// A cell of a table, in which a bar would begin the next one.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '|') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

std::string row(const CLI::Option& option) {
  const HelpLine line = help_line(option);
  std::string name = names_of(option);
  if (const std::string value = value_of(option); !value.empty()) name += " " + value;
  return fmt::format("| `{}` | {} | {} |\n", cell(name), cell(line.text), cell(line.fallback));
}

std::string markdown(const CLI::App& parser) {
  std::string text = fmt::format("\n## {}\n\n{}\n", parser.get_name(), parser.get_description());
  const auto groups = option_groups(parser);
  for (const OptionGroup& group : groups) {
    if (groups.size() > 1) text += fmt::format("\n### {}\n", group.heading);
    text += "\n| option | what it does | default |\n| --- | --- | --- |\n";
    for (const CLI::Option* option : group.options) text += row(*option);
  }
  return text;
}

// ---- bash ----

// Behind mpirun or srun, the words from dtrain on count. bash makes `--mesh=data` three words.
constexpr const char* kBashHead =
    R"(# Completion of dtrain in bash. Made from the program's options by: dtrain --help=bash
_dtrain() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} begin command=train
  local options='' taking='' paths='' values='' commands='COMMANDS'
  COMPREPLY=()
  for ((begin = 0; begin < COMP_CWORD; ++begin)); do
    [[ ${COMP_WORDS[begin]##*/} != dtrain ]] || break
  done
  ((begin < COMP_CWORD)) || return 0
  if [[ $word == '=' ]]; then
    word=''
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  [[ " $commands " != *" ${COMP_WORDS[begin + 1]} "* ]] || command=${COMP_WORDS[begin + 1]}
  case $command in
)";

constexpr const char* kBashTail = R"(  esac
  if [[ $taking == *" $previous "* ]]; then
    # shellcheck disable=SC2207  # values are words without blanks
    COMPREPLY=($(compgen -W "$values" -- "$word"))
    # Names of files only where the value may be one.
    [[ $paths == *" $previous "* ]] || compopt +o default 2>/dev/null
  elif [[ $word == -* ]]; then
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif ((COMP_CWORD == begin + 1)); then
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$commands" -- "$word"))
  fi
}
complete -o default -F _dtrain dtrain
# Where no other completion is known for them, behind launchers as well.
for _dtrain_launcher in mpirun mpiexec srun; do
  complete -p "$_dtrain_launcher" >/dev/null 2>&1 || complete -o default -F _dtrain "$_dtrain_launcher"
done
unset _dtrain_launcher
)";

/// One case of the script: what the words behind a command can be.
std::string bash_case(const CLI::App& parser) {
  std::string options;
  std::string taking = " ";
  std::string paths = " ";
  std::string values;
  for (const CLI::Option* option : parser.get_options()) {
    const std::string value = value_of(*option);
    for (const std::string& name : option->get_lnames()) {
      options += (options.empty() ? "--" : " --") + name;
      if (value.empty()) continue;
      taking += "--" + name + " ";
      if (takes_path(*option)) paths += "--" + name + " ";
      if (const auto literal = literal_values(*option); !literal.empty())
        values += fmt::format("        --{}) values='{}' ;;\n", name, fmt::join(literal, " "));
    }
  }
  const std::string command = command_of(parser);
  return fmt::format(
      "    {})\n      options='{}'\n      taking='{}' paths='{}'\n      case $previous in\n{}"
      "        *) ;;\n      esac ;;\n",
      command, options, taking, paths, values);
}

}  // namespace

std::optional<HelpForm> help_form(const Words& words) {
  if (words.empty() || !words.front().starts_with(kAsked)) return std::nullopt;
  if (words.size() > 1)
    throw usage_error("stands alone", words.front(), "leave out " + words[1] + " and what follows");
  const std::string wanted = words.front().substr(kAsked.size());
  std::vector<std::string> names;
  for (const auto& [name, form] : kForms) {
    if (name == wanted) return form;
    names.emplace_back(name);
  }
  throw usage_error("there is no such form of the help", words.front(),
                    fmt::format("use one of {}, or --help alone", fmt::join(names, ", ")));
}

std::string help_in(HelpForm form, const CLI::App& parser) {
  switch (form) {
    case HelpForm::markdown:
      return markdown(parser);
    case HelpForm::man:
      return manual_page(parser);
    case HelpForm::bash:
      return bash_case(parser);
    case HelpForm::zsh:
      return zsh_case(parser);
  }
  return {};
}

std::string help_head(HelpForm form) {
  if (form == HelpForm::markdown) return kOptionsPage;
  if (form == HelpForm::zsh) return zsh_head();
  if (form != HelpForm::bash) return {};
  constexpr std::string_view kPlace = "COMMANDS";
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  std::string head = kBashHead;
  return head.replace(head.find(kPlace), kPlace.size(), fmt::format("{}", fmt::join(names, " ")));
}

std::string help_tail(HelpForm form) {
  if (form == HelpForm::zsh) return zsh_tail();
  return form == HelpForm::bash ? kBashTail : "";
}

}  // namespace dtrain::app
