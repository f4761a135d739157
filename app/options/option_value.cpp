#include "options/option_value.hpp"

#include <fmt/format.h>

#include <string_view>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"

namespace dtrain::app {
namespace {

template <typename T>
void read_number(const std::string& text, const std::string& name, T& value, std::string_view kind,
                 std::string_view example) {
  const auto number = leading_number<T>(std::string_view(text).substr(text.starts_with('+') ? 1 : 0));
  if (number.error == std::errc::result_out_of_range) {
    throw usage_error(fmt::format("{} is out of range", text), "--" + name,
                      fmt::format("use {}, such as {}", kind, example));
  }
  if (!number || !number.rest.empty()) {
    throw usage_error(fmt::format("\"{}\" is not {}", text, kind), "--" + name,
                      fmt::format("use one, such as {}", example));
  }
  value = number.value;
}

/// Throws usage_error for bytes that are no text: config.toml and the checkpoints keep it, and TOML and JSON
/// are UTF-8.
const std::string& read_text(const std::string& text, const std::string& name) {
  if (!is_utf8(text))
    throw usage_error(fmt::format("{} is not UTF-8", printable(text, 100)), "--" + name,
                      "write it in UTF-8, or rename the file");
  return text;
}

}  // namespace

void read_value(const std::string& text, const std::string& name, int& value) {
  read_number(text, name, value, "a whole number", "8");
}

void read_value(const std::string& text, const std::string& name, std::uint64_t& value) {
  read_number(text, name, value, "a whole number, 0 or more", "1");
}

void read_value(const std::string& text, const std::string& name, double& value) {
  read_number(text, name, value, "a number", "0.01");
}

void read_value(const std::string& text, const std::string& name, bool& value) {
  if (text != "true" && text != "false") {
    throw usage_error(fmt::format("\"{}\" is neither true nor false", text), "--" + name, "use one of these");
  }
  value = text == "true";
}

void read_value(const std::string& text, const std::string& name, std::string& value) {
  value = read_text(text, name);
}

void read_value(const std::string& text, const std::string& name, comm::Backend& value) {
  value = comm::parse_backend(read_text(text, name));
}

void read_value(const std::string& text, const std::string& name, comm::Algorithm& value) {
  value = comm::parse_algorithm(read_text(text, name));
}

void read_value(const std::string& text, const std::string& name, topology::RankOrder& value) {
  value = topology::parse_rank_order(read_text(text, name));
}

void read_value(const std::string& text, const std::string& name, std::map<std::string, std::string>& value) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw usage_error(fmt::format("\"{}\" has no key", text), "--" + name, "write KEY=VALUE");
  }
  if (!is_utf8(text))
    throw usage_error(fmt::format("{} is not UTF-8", printable(text, 100)), "--" + name, "write it in UTF-8");
  value[text.substr(0, equals)] = text.substr(equals + 1);
}

std::string write_toml(int value) { return fmt::format("{}", value); }
std::string write_toml(std::uint64_t value) { return fmt::format("{}", value); }
std::string write_toml(bool value) { return value ? "true" : "false"; }

std::string write_toml(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string write_toml(const std::string& value) {
  if (value.empty()) return "";
  std::string text = "\"";
  for (const char letter : value) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      text += '\\';
      text += letter;
    } else if (code < 0x20 || code == 0x7F) {
      text += fmt::format("\\u{:04X}", code);
    } else {
      text += letter;
    }
  }
  return text + '"';
}

std::string write_toml(comm::Backend value) { return write_toml(std::string(name_of(value))); }
std::string write_toml(comm::Algorithm value) { return write_toml(std::string(name_of(value))); }
std::string write_toml(topology::RankOrder value) { return write_toml(std::string(name_of(value))); }

std::string write_toml(const std::map<std::string, std::string>& value) {
  std::string text;
  for (const auto& [key, entry] : value) {
    text += (text.empty() ? "" : ", ") + write_toml(key + "=" + entry);
  }
  return text.empty() ? "" : "[" + text + "]";
}

}  // namespace dtrain::app
