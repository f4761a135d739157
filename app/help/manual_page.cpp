#include "help/manual_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "commands.hpp"
#include "core/version.hpp"
#include "help/help_option.hpp"

namespace dtrain::app {
namespace {

/// Text of a page: a backslash and a hyphen mean something else to groff, and so does a dot or an apostrophe
/// where a line begins.
std::string plain(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\')
      escaped += "\\e";
    else if (letter == '-')
      escaped += "\\-";
    else
      escaped += letter;
  }
  if (escaped.starts_with('.') || escaped.starts_with('\'')) escaped.insert(0, "\\&");
  return escaped;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return text;
}

std::string sentence(std::string text) {
  if (!text.ends_with('.')) text += '.';
  return text;
}

std::string entry(const CLI::Option& option) {
  const HelpLine line = help_line(option);
  std::string text = fmt::format(".TP\n\\fB{}\\fR", plain(names_of(option)));
  if (const std::string value = value_of(option); !value.empty() && !option.get_positional())
    text += fmt::format(" \\fI{}\\fR", plain(value));
  text += "\n" + plain(sentence(line.text)) + "\n";
  if (!line.fallback.empty()) text += "Default: " + plain(sentence(line.fallback)) + "\n";
  return text;
}

std::string options(const CLI::App& parser) {
  std::string text = ".SH OPTIONS\n";
  const auto groups = option_groups(parser);
  for (const OptionGroup& group : groups) {
    if (groups.size() > 1) text += ".SS " + plain(group.heading) + "\n";
    for (const CLI::Option* option : group.options) text += entry(*option);
  }
  return text;
}

std::string command_section() {
  std::string text = ".SH COMMANDS\n";
  for (const Command& command : commands())
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", plain(command.name), plain(sentence(command.summary)));
  return text;
}

constexpr const char* kInCommon = R"(.SH CONFIGURATION
Each option of train is also a key of the TOML file that \fB\-\-config\fR names.
A flag overrides the file, the file overrides the model's default, and the model's default overrides the
defaults above.
\fB\-\-print\-config\fR prints the options in force as such a file.
.SH FILES
.TP
\fIruns/NAME/\fR
The run: results.h5 with what each rank measured, config.toml, checkpoints, and the file state with running, completed, preempted or failed.
.TP
\fIdata/staged/NAME/\fR
A staged dataset: shards, and dataset.json.
.SH EXIT STATUS
0 done, 1 failure while running, 2 usage or configuration, 3 data, 4 checkpoint, 5 a rank was lost or hung,
75 stopped on request: the same command resumes.
.SH EXAMPLES
.nf
mpirun \-np 2 dtrain \-\-dataset synthetic \-\-name first
dtrain report runs/first
mpirun \-np 8 dtrain \-\-mesh data=4,pipe=2
.fi
)";

std::string see_also(const std::string& own_page) {
  std::string text = ".SH SEE ALSO\n";
  std::string line;
  for (const Command& command : commands()) {
    const std::string page = command.name == "train" ? "dtrain" : "dtrain-" + command.name;
    if (page != own_page) line += fmt::format("{}.BR {} (1)", line.empty() ? "" : ",\n", plain(page));
  }
  return text + line + "\n";
}

}  // namespace

std::string command_of(const CLI::App& parser) {
  const std::string name = parser.get_name();
  return name.substr(name.find(' ') + 1);
}

std::string manual_page(const CLI::App& parser) {
  const std::string command = command_of(parser);
  const bool first = command == "train";
  const std::string page = first ? "dtrain" : "dtrain-" + command;
  const auto known = std::ranges::find(commands(), command, &Command::name);
  const std::string summary = first                       ? "train neural networks on many ranks of MPI"
                              : known != commands().end() ? known->summary
                                                          : parser.get_description();
  std::string text =
      fmt::format(".TH \"{}\" 1 \"\" \"dtrain {}\" \"User Commands\"\n", plain(upper(page)), version());
  text += fmt::format(".SH NAME\n{} \\- {}\n", plain(page), plain(summary));
  text += ".SH SYNOPSIS\n";
  if (first) {
    text +=
        "[\\fBmpirun\\fR \\fB\\-np\\fR \\fIRANKS\\fR] \\fBdtrain\\fR [\\fICOMMAND\\fR] [\\fIOPTIONS\\fR]\n";
  } else {
    text += fmt::format("\\fBdtrain {}\\fR [\\fIOPTIONS\\fR]", plain(command));
    for (const CLI::Option* option : parser.get_options())
      if (option->get_positional()) text += fmt::format(" \\fI{}\\fR", plain(names_of(*option)));
    text += "\n";
  }
  text += ".SH DESCRIPTION\n" + plain(parser.get_description()) + "\n";
  if (first) text += command_section();
  text += options(parser);
  if (first) text += kInCommon;
  return text + see_also(page);
}

}  // namespace dtrain::app
