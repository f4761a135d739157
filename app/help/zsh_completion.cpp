#include "help/zsh_completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "commands.hpp"
#include "help/help_option.hpp"
#include "help/manual_page.hpp"

namespace dtrain::app {
namespace {

// Behind mpirun or srun, the words from dtrain on count.
constexpr const char* kZshHead = R"(#compdef dtrain
# Completion of dtrain in zsh. Made from the program's options by: dtrain --help=zsh
_dtrain() {
  local command=train begin=${words[(i)(*/|)dtrain]}
  local -a commands=(
COMMANDS  )
  if (( begin >= CURRENT )); then
    _default
    return
  fi
  shift $(( begin - 1 )) words
  (( CURRENT -= begin - 1 ))
  if (( CURRENT > 2 && ${#commands[(R)${words[2]}:*]} )); then
    command=${words[2]}
    shift words
    (( CURRENT-- ))
  elif (( CURRENT == 2 )) && [[ ${words[2]} != -* ]]; then
    _describe command commands
    return
  fi
  case $command in
)";

constexpr const char* kZshTail = R"(  esac
}
if [[ ${funcstack[1]} == _dtrain ]]; then
  _dtrain "$@"  # found in fpath
else
  compdef _dtrain dtrain
  # Where no other completion is known for them, behind launchers as well.
  for _dtrain_launcher in mpirun mpiexec srun; do
    (( ${+_comps[$_dtrain_launcher]} )) || compdef _dtrain $_dtrain_launcher
  done
  unset _dtrain_launcher
fi
)";

/// `text` within single quotes, with a backslash before each of `special`.
std::string zsh_quoted(std::string_view text, std::string_view special) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\'') {
      escaped += "'\\''";
      continue;
    }
    if (letter == '\\' || special.find(letter) != std::string_view::npos) escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

/// What follows an option that takes a value: `:N: `, or with what zsh can offer for it.
std::string zsh_action(const CLI::Option& option) {
  const std::string value = value_of(option);
  if (value.empty()) return {};
  const auto literal = fmt::format("{}", fmt::join(literal_values(option), " "));
  std::string offers = " ";
  if (!literal.empty()) offers = "(" + literal + ")";
  // A colon within an action is escaped.
  if (takes_path(option)) {
    offers = "_files";
    if (!literal.empty())
      offers = "{ _alternative \"values\\:value\\:(" + literal + ")\" \"files\\:file\\:_files\" }";
  }
  return fmt::format(":{}:{}", zsh_quoted(value, ":"), offers);
}

}  // namespace

std::string zsh_case(const CLI::App& parser) {
  std::vector<std::string> specs;
  bool has_words = false;
  for (const CLI::Option* option : parser.get_options()) {
    const std::string text = zsh_quoted(help_line(*option).text, "[]");
    const std::string value = zsh_action(*option);
    const bool repeats = option->get_items_expected_max() > 1 ||
                         option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    has_words |= option->get_positional();
    for (const std::string& name : option->get_lnames()) {
      specs.push_back(
          fmt::format("'{}--{}{}[{}]{}'", repeats ? "*" : "", name, value.empty() ? "" : "=", text, value));
    }
  }
  if (has_words) specs.emplace_back("'*:word:_files'");
  return fmt::format("    {})\n      _arguments \\\n        {} ;;\n", command_of(parser),
                     fmt::join(specs, " \\\n        "));
}

std::string zsh_head() {
  constexpr std::string_view kPlace = "COMMANDS";
  std::string lines;
  for (const Command& command : commands())
    lines += fmt::format("    '{}:{}'\n", command.name, zsh_quoted(command.summary, ""));
  std::string head = kZshHead;
  return head.replace(head.find(kPlace), kPlace.size(), lines);
}

std::string zsh_tail() { return kZshTail; }

}  // namespace dtrain::app
