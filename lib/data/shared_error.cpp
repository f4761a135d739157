#include "data/shared_error.hpp"

#include <sstream>

namespace dtrain::data {

std::string error_to_text(const Error& error) {
  return error.subject() + "\n" + error.problem() + "\n" + error.advice() + "\n";
}

std::optional<Error> error_from_text(const std::string& text) {
  std::istringstream lines(text);
  std::string subject;
  std::string problem;
  std::string advice;
  if (!std::getline(lines, subject) || !std::getline(lines, problem) || !std::getline(lines, advice))
    return std::nullopt;
  return data_error(problem, subject, advice);
}

}  // namespace dtrain::data
