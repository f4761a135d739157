#include "options/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "help/help_forms.hpp"
#include "options/suggestion.hpp"

namespace dtrain::app {
namespace {

std::string see_help(const CLI::App& parser) { return fmt::format("see {} --help", parser.get_name()); }

/// Throws for the first word that nothing was bound to.
void refuse(const CLI::App& parser, const Words& extras) {
  const auto flag =
      std::find_if(extras.begin(), extras.end(), [](const auto& word) { return word.starts_with("-"); });
  if (flag == extras.end()) {
    throw usage_error("is one word too many", "\"" + extras.front() + "\"", see_help(parser));
  }
  const std::string name = flag->substr(0, flag->find('='));
  const auto begin = name.find_first_not_of('-');
  const std::string bare = begin == std::string::npos ? "" : name.substr(begin);
  std::vector<std::string> names;
  for (const CLI::Option* option : parser.get_options()) {
    for (const auto& long_name : option->get_lnames()) names.push_back(long_name);
  }
  const std::string meant = nearest(bare, names);
  throw usage_error("there is no such option", name,
                    meant.empty() ? see_help(parser) : fmt::format("did you mean --{}?", meant));
}

}  // namespace

Parser::Parser(const std::string& command, const std::string& summary)
    : CLI::App(summary, "dtrain " + command) {
  allow_extras();
  set_help_flag("-h,--help",
                "print this and exit; in another form: --help=markdown, --help=man, --help=bash, --help=zsh");
  get_formatter()->column_width(36);
}

std::optional<std::string> parse(Parser& parser, const Words& words) {
  if (const auto form = help_form(words)) return help_in(*form, parser);
  try {
    parser.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  } catch (const CLI::CallForHelp&) {
    return parser.help();
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    const std::string name = text.substr(0, text.find(':'));
    const CLI::Option* option = parser.get_option_no_throw(name);
    const auto times = option == nullptr ? 0 : std::ssize(option->results());
    if (times > 1) throw usage_error(fmt::format("is given {} times", times), name, "give it once");
    throw usage_error("has no value", name, see_help(parser));
  } catch (const CLI::RequiredError& error) {
    throw usage_error(error.what(), parser.get_name(), see_help(parser));
  } catch (const CLI::ParseError& error) {
    throw usage_error(error.what(), "", see_help(parser));
  }
  const auto extras = parser.remaining();
  if (!extras.empty()) refuse(parser, extras);
  return std::nullopt;
}

}  // namespace dtrain::app
