#include "core/shared_failure.hpp"

#include <algorithm>
#include <sstream>

#include "core/parse_number.hpp"
#include "core/printable.hpp"

namespace dtrain {

std::string failure_to_text(const std::optional<Error>& failure) {
  if (!failure) return {};
  // What others wrote must not add a line.
  return std::to_string(static_cast<int>(failure->code())) + "\n" + printable(failure->subject()) + "\n" +
         printable_sentence(failure->problem()) + "\n" + printable_sentence(failure->advice()) + "\n";
}

std::optional<Error> failure_from_text(const std::string& text) {
  std::istringstream lines(text);
  std::string code;
  std::string subject;
  std::string problem;
  std::string advice;
  if (!std::getline(lines, code) || !std::getline(lines, subject) || !std::getline(lines, problem) ||
      !std::getline(lines, advice))
    return std::nullopt;
  const auto number = parse_number<int>(code);
  if (!number) return std::nullopt;
  return Error(problem, {.subject = subject, .advice = advice, .code = static_cast<ExitCode>(*number)});
}

std::optional<Error> first_failure(std::span<const std::string> texts) {
  std::optional<Error> first;
  auto code = ExitCode::success;
  for (const std::string& text : texts) {
    const auto failure = failure_from_text(text);
    if (!failure) continue;
    code = std::max(code, failure->code());
    if (!first) first = failure;
  }
  if (!first) return std::nullopt;
  return Error(first->problem(), {.subject = first->subject(), .advice = first->advice(), .code = code});
}

}  // namespace dtrain
