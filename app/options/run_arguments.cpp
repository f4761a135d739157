#include "options/run_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "commands.hpp"
#include "core/version.hpp"
#include "options/command_line.hpp"
#include "options/option.hpp"
#include "options/plugin_option.hpp"
#include "options/recipe.hpp"
#include "options/suggestion.hpp"
#include "options/toml_file.hpp"
#include "run/run_contents.hpp"

namespace dtrain::app {
namespace {

/// The words given to one option; CLI11 keeps the address.
struct Given {
  const Option* option = nullptr;
  std::vector<std::string> values;
  bool toggle = false;
  CLI::Option* flag = nullptr;
};

void add_option(CLI::App& parser, Given& given) {
  const Option& option = *given.option;
  const std::string help =
      option.fallback.empty() ? option.help : fmt::format("{} [{}]", option.help, option.fallback);
  if (option.kind == Option::Kind::toggle) {
    given.flag = parser.add_flag("--" + option.name, given.toggle, help);
  } else {
    given.flag = parser.add_option("--" + option.name, given.values, help)
                     ->option_text(option.argument)
                     ->expected(1)
                     ->allow_extra_args(false)
                     ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  given.flag->group(option.group);
}

void apply_flags(const std::deque<Given>& all, train::RunConfig& config) {
  for (const Given& given : all) {
    if (given.flag->count() == 0) continue;
    if (given.option->kind == Option::Kind::toggle) {
      apply(*given.option, given.toggle ? "true" : "false", config);
    }
    for (const auto& value : given.values) apply(*given.option, value, config);
  }
}

const Option& find_key(const std::string& key, const std::string& file) {
  const auto& options = run_options();
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.name == key; });
  if (found != options.end()) return *found;
  if (key == "plugin") {
    throw usage_error("names a plug-in, which is code, and no file may bring code with it", file,
                      "leave the key out, and give --plugin on the command line");
  }
  std::vector<std::string> names;
  for (const Option& option : options) names.push_back(option.name);
  const std::string meant = nearest(key, names);
  throw usage_error(
      fmt::format("there is no key {}", key), file,
      meant.empty() ? "dtrain --print-config lists all keys" : fmt::format("did you mean {}?", meant));
}

std::string command_footer() {
  std::string text = "Commands (dtrain COMMAND --help):\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  return text +
         "\nExit codes: 0 done, 1 failure while running, 2 usage or configuration, 3 data, 4 checkpoint,\n"
         "5 a rank was lost or hung, 75 stopped on request.";
}

}  // namespace

void apply_entries(const std::vector<FileEntry>& entries, const std::string& origin,
                   train::RunConfig& config) {
  for (const FileEntry& entry : entries) {
    const Option& option = find_key(entry.key, origin);
    if (option.kind != Option::Kind::list && entry.values.size() != 1) {
      throw usage_error(fmt::format("the key {} takes one value, not {}", entry.key, entry.values.size()),
                        origin, "write it without brackets");
    }
    try {
      for (const auto& value : entry.values) apply(option, value, config);
    } catch (const Error& error) {
      throw usage_error(fmt::format("{}: {}", entry.key, error.problem()), origin, error.advice());
    }
  }
}

RunArguments read_run_arguments(const Words& words) {
  Parser parser("train",
                "Trains a network on all ranks that mpirun or srun starts. The word train may be left out.");
  std::string file;
  RunArguments arguments;
  std::deque<Given> all;
  for (const Option& option : run_options()) add_option(parser, all.emplace_back(Given{.option = &option}));
  parser.add_option("--config", file, "take options from a TOML file; flags override it")
      ->option_text("FILE");
  std::vector<std::string> plugins;
  bind_plugins(parser, plugins);
  parser.add_flag("--print-config", arguments.print_config,
                  "print the options in force as a TOML file and exit");
  bool version_only = false;
  parser.add_flag("--version", version_only, "print dtrain's version and exit");
  parser.footer(command_footer());
  arguments.help = parse(parser, words);
  if (arguments.help) return arguments;
  if (version_only) {
    arguments.help = fmt::format("dtrain {}\n", version());
    return arguments;
  }
  models::load_plugins(plugins);
  if (parser.count("--config") > 0) {
    auto entries = read_toml(file);
    // Earlier versions kept it in a run's own file, by which the run would replace itself.
    if (is_run_folder(std::filesystem::path(file).parent_path()))
      std::erase_if(entries, [](const FileEntry& entry) { return entry.key == "overwrite"; });
    apply_entries(entries, file, arguments.config);
  }
  apply_flags(all, arguments.config);
  apply_recipe(arguments.config);
  return arguments;
}

}  // namespace dtrain::app
