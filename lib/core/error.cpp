#include "core/error.hpp"

#include <utility>

#include "core/printable.hpp"

namespace dtrain {
namespace {

constexpr std::size_t kMostOfAProblem = 4000;  // watchdogs name many ranks

/// Whatever a file, its name or an option holds: no terminal is sent control characters, no log a false line.
std::string sentence(std::string_view problem, const ErrorContext& context) {
  std::string text;
  if (!context.subject.empty()) text = printable(context.subject) + ": ";
  text += printable(printable_sentence(problem), kMostOfAProblem);
  if (!context.advice.empty()) text += "; " + printable_sentence(context.advice);
  return text;
}

Error with_code(ExitCode code, std::string_view problem, std::string_view subject, std::string_view advice) {
  return Error(problem, {.subject = std::string(subject), .advice = std::string(advice), .code = code});
}

}  // namespace

Error::Error(std::string_view problem, ErrorContext context)
    : std::runtime_error(sentence(problem, context)), problem_(problem), context_(std::move(context)) {}

Error usage_error(std::string_view problem, std::string_view subject, std::string_view advice) {
  return with_code(ExitCode::usage, problem, subject, advice);
}

Error data_error(std::string_view problem, std::string_view subject, std::string_view advice) {
  return with_code(ExitCode::data, problem, subject, advice);
}

Error checkpoint_error(std::string_view problem, std::string_view subject, std::string_view advice) {
  return with_code(ExitCode::checkpoint, problem, subject, advice);
}

}  // namespace dtrain
