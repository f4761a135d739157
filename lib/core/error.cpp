#include "core/error.hpp"

#include <utility>

namespace dtrain {
namespace {

std::string sentence(std::string_view problem, const ErrorContext& context) {
  std::string text;
  if (!context.subject.empty()) text = context.subject + ": ";
  text += problem;
  if (!context.advice.empty()) text += "; " + context.advice;
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
