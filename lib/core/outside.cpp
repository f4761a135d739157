#include "core/outside.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string_view>

#include "core/printable.hpp"

namespace dtrain {
namespace {

constexpr std::size_t kMostOfALibrary = 200;

/// Between single quotes, such as the key that is missing; empty: there are none.
std::string_view quoted(std::string_view text) {
  const std::size_t begin = text.find('\'');
  const std::size_t end = begin == std::string_view::npos ? begin : text.find('\'', begin + 1);
  return end == std::string_view::npos ? std::string_view() : text.substr(begin + 1, end - begin - 1);
}

/// Of nlohmann's `[json.exception.KIND.NUMBER] words`, which this folder does not link.
std::string problem_of_json(std::string_view text) {
  if (text.find("parse_error") != std::string_view::npos) {
    const std::size_t line = text.find("at line ");
    const std::size_t end = std::min(text.find_first_of(",:", line), text.size());
    return line == std::string_view::npos ? "is not valid JSON"
                                          : "is not valid JSON " + std::string(text.substr(line, end - line));
  }
  if (text.find("out_of_range.403") != std::string_view::npos)
    return "has no field " + printable(quoted(text), 100);
  if (text.find("type_error.316") != std::string_view::npos) return "holds text that is not UTF-8";
  if (text.find("type_error") != std::string_view::npos) return "has a field of another type than it should";
  return "has a field with a value that it cannot have";
}

/// What a C++ library calls its own functions says nothing to the reader.
bool names_code(std::string_view text) {
  constexpr std::array<std::string_view, 6> kCode = {"std::", "vector::", "basic_string",
                                                     "stoi",  "stol",     "map::at"};
  return std::ranges::any_of(kCode, [text](auto code) { return text.find(code) != std::string_view::npos; });
}

}  // namespace

std::string problem_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->problem();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return "needs more memory than there is";
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    const std::string reason = files->code().message();
    return files->path1().empty() ? reason : printable(files->path1().string()) + ": " + reason;
  }
  const std::string_view text = error.what();
  if (text.starts_with("[json.exception.")) return problem_of_json(text);
  const std::string_view line = text.substr(0, text.find('\n'));
  if (line.empty() || names_code(line)) return "cannot be understood";
  return "cannot be understood (" + printable(line, kMostOfALibrary) + ")";
}

Error error_from_outside(const std::exception& error, const ErrorContext& context) {
  const auto* own = dynamic_cast<const Error*>(&error);
  if (own == nullptr) return {problem_of(error), context};
  if (own->code() != ExitCode::failure) return *own;
  return {own->problem(),
          {.subject = own->subject().empty() ? context.subject : own->subject(),
           .advice = own->advice().empty() ? context.advice : own->advice(),
           .code = context.code}};
}

}  // namespace dtrain
