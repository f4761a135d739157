#include "options/toml_file.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstddef>

#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "core/regular_file.hpp"

namespace dtrain::app {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

std::string toml_value(const toml::node& node, const std::string& file, const std::string& key) {
  if (const auto text = node.as_string()) return text->get();
  if (const auto number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto truth = node.as_boolean()) return truth->get() ? "true" : "false";
  throw usage_error(fmt::format("line {}: {} holds neither text nor a number", node.source().begin.line,
                                printable(key, 100)),
                    file, "write the keys at the top level as KEY = VALUE");
}

toml::table parse(const std::string& text, const std::string& file) {
  constexpr const char* kAdvice = "correct the line; dtrain --print-config shows how a file looks";
  if (const std::string problem = refused_toml(text); !problem.empty())
    throw usage_error(problem, file, "write the keys at the top level as KEY = VALUE");
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw usage_error(
        fmt::format("line {}: {}", error.source().begin.line, printable(error.description(), 200)), file,
        kAdvice);
  }
}

}  // namespace

std::vector<FileEntry> parse_toml(const std::string& text, const std::string& origin) {
  const toml::table table = parse(text, origin);
  std::vector<FileEntry> entries;
  for (const auto& [key, node] : table) {
    FileEntry entry{.key = std::string(key.str()), .values = {}};
    if (const auto list = node.as_array()) {
      for (const auto& item : *list) entry.values.push_back(toml_value(item, origin, entry.key));
    } else {
      entry.values.push_back(toml_value(node, origin, entry.key));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<FileEntry> read_toml(const std::string& file) {
  try {
    return parse_toml(read_regular_file(file, kMostBytes, ExitCode::usage), file);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw usage_error(problem_of(error), file, "check the file given to --config");
  }
}

}  // namespace dtrain::app
