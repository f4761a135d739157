#include "commands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "help/help_forms.hpp"
#include "options/suggestion.hpp"

namespace dtrain::app {
namespace {

/// The help of all commands in one text.
Task help_of_all(HelpForm form, const Words& words, const Environment& environment) {
  return {.alone =
              [form, words, environment] {
                std::fputs(help_head(form).c_str(), stdout);
                for (const Command& command : commands()) command.understand(words, environment).alone();
                std::fputs(help_tail(form).c_str(), stdout);
                return ExitCode::success;
              },
          .together = {}};
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      {"train", "train a network (also without a command)", train_command},
      {"stage", "turn original files into shards", stage_command},
      {"report", "show what runs measured", report_command},
      {"evaluate", "measure a trained model on a split", evaluate_command},
      {"predict", "say what new data are, with a trained model", predict_command},
      {"generate", "continue a text, or translate, with a trained model", generate_command},
      {"export", "write a checkpoint's weights as .h5 or .safetensors", export_command},
      {"plan", "rank the meshes of a cluster, or draw the schedule of a pipeline", plan_command},
      {"privacy", "say what noise a private training needs, or how private it is", privacy_command},
      {"topology", "show where each rank runs and its place on the mesh", topology_command},
      {"doctor", "check what can be wrong before a job", doctor_command},
  };
  return kCommands;
}

Task print_task(std::string text) {
  return {.alone =
              [text = std::move(text)] {
                std::fputs(text.c_str(), stdout);
                return ExitCode::success;
              },
          .together = {}};
}

Task understand(int argc, const char* const* argv, const Environment& environment) {
  Words words(argv + 1, argv + argc);
  const auto form = help_form(words);
  if (form && *form != HelpForm::man) return help_of_all(*form, words, environment);  // man: a page each
  if (words.empty() || words.front().starts_with("-")) return train_command(words, environment);
  const std::string name = words.front();
  words.erase(words.begin());
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command.understand(words, environment);
    names.push_back(command.name);
  }
  const std::string meant = nearest(name, names);
  throw usage_error("there is no such command", name,
                    meant.empty() ? fmt::format("use one of {}", fmt::join(names, ", "))
                                  : fmt::format("did you mean {}?", meant));
}

}  // namespace dtrain::app
