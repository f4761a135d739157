#include "toml_file.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <fstream>
#include <sstream>

#include "core/error.hpp"

namespace dtrain::app {
namespace {

std::string value_of(const toml::node& node, const std::string& file, const std::string& key) {
  if (const auto text = node.as_string()) return text->get();
  if (const auto number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto truth = node.as_boolean()) return truth->get() ? "true" : "false";
  throw usage_error(fmt::format("line {}: {} holds neither text nor a number", node.source().begin.line, key),
                    file, "write the keys at the top level as KEY = VALUE");
}

toml::table parse(const std::string& text, const std::string& file) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw usage_error(fmt::format("line {}: {}", error.source().begin.line, error.description()), file,
                      "correct the line; dtrain --print-config shows how a file looks");
  }
}

}  // namespace

std::vector<FileEntry> parse_toml(const std::string& text, const std::string& origin) {
  const toml::table table = parse(text, origin);
  std::vector<FileEntry> entries;
  for (const auto& [key, node] : table) {
    FileEntry entry{.key = std::string(key.str()), .values = {}};
    if (const auto list = node.as_array()) {
      for (const auto& item : *list) entry.values.push_back(value_of(item, origin, entry.key));
    } else {
      entry.values.push_back(value_of(node, origin, entry.key));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<FileEntry> read_toml(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    throw usage_error("cannot be read", file, "check the path given to --config");
  }
  return parse_toml(text.str(), file);
}

}  // namespace dtrain::app
